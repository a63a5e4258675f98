"""The flags that several benches share."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RoundsFlags:
    rounds: int = field(default=3, metadata={"min": 1})
    """``--rounds N``: Measure each side this many times."""
    json: bool = False
    """``--json``: Print one JSON object, with every sample."""


@dataclass(frozen=True, kw_only=True)
class AgainstFlag:
    against: str | None = None
    """``--against SIDE``: ``transformers``: time it too, in turn."""


@dataclass(frozen=True, kw_only=True)
class ThreadsFlag:
    threads: int | None = field(default=None, metadata={"min": 1})
    """``--threads N``: Threads on each side. If not set: PyTorch's choice."""


@dataclass(frozen=True, kw_only=True)
class ModelFlag:
    model: str = "minilm"
    """``--model MODEL``: Model to time, with its vocabulary."""


@dataclass(frozen=True, kw_only=True)
class PrecisionFlag:
    precision: str = "auto"
    """``auto``, float32 or bfloat16, on both sides."""


@dataclass(frozen=True, kw_only=True)
class PretrainingFlags:
    size: str = "mini"
    """``--size SIZE``: Size of the model, with random weights."""
    data: str | None = None
    """``--data DIR``: Corpus that build-corpus wrote. If not set: a small one."""
    steps: int = field(default=20, metadata={"min": 4})
    """``--steps N``: Steps to take; 3 are not timed."""
    tokens_per_step: int = field(default=8192, metadata={"min": 128})
    """``--tokens-per-step N``: Tokens in each step."""
    device: str = "cpu"
    """Device to compute on: cpu, cuda or cuda:N."""
