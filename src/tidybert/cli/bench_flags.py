"""The flags of ``tidybert bench``."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tidybert.cli import shared_flags as flags
from tidybert.errors import UsageError

if TYPE_CHECKING:
    from tidybert.timing.work import PretrainingWork


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
class TrainingAgainstFlag(AgainstFlag):
    against: str | None = None
    """``--against SIDE``: ``transformers``: time it too, in turn. ``transformers-flash``: with the
    package flash-attn."""


@dataclass(frozen=True, kw_only=True)
class ModelFlag:
    model: str = "minilm"
    """``--model MODEL``: Model to time, with its vocabulary."""


@dataclass(frozen=True, kw_only=True)
class PrecisionFlag:
    precision: str = "auto"
    """``auto``, float32 or bfloat16, on both sides."""


@dataclass(frozen=True, kw_only=True)
class BenchDeviceFlag(flags.ThreadsFlag):
    PANEL: ClassVar = "Device"

    device: str = "cpu"
    """Device to compute on: cpu, cuda or cuda:N."""

    def named_device(self) -> str:
        """The device's name; raises UsageError if this machine does not have it."""
        from tidybert.inference.loading import choose_device

        return str(choose_device(self.device))


@dataclass(frozen=True, kw_only=True)
class ProfileFlag(BenchDeviceFlag):
    profile: bool = False
    """``--profile``: Show the operations that take the most time; on a GPU, also count kernel
    launches and synchronisations. A CPU needs --threads 1."""

    def prepare(self) -> None:
        super().prepare()
        if self.profile and self.device == "cpu" and self.threads != 1:
            raise UsageError(
                "--profile on a CPU needs --threads 1: the profiler sees only the first thread"
            )

    @property
    def is_profiled(self) -> bool:
        """A GPU is always profiled, for the share of the time outside products."""
        return self.profile or self.device != "cpu"

    def peak_row(self) -> str:
        """The name of the row of peak memory."""
        return "peak MiB" if self.device == "cpu" else "peak MiB of the GPU"


@dataclass(frozen=True, kw_only=True)
class LengthFlag:
    max_seq_length: int | None = field(default=None, metadata={"min": 8})
    """``--max-seq-length N``: Most tokens of a text. If not set: 128, or as many as the model
    allows."""


@dataclass(frozen=True, kw_only=True)
class TokenizeFlags(ModelFlag, AgainstFlag, RoundsFlags):
    rounds: int = field(default=5, metadata={"min": 1})
    """``--rounds N``: Measure each side this many times."""


@dataclass(frozen=True, kw_only=True)
class InferFlags(ProfileFlag, LengthFlag, TokenizeFlags):
    texts: str | None = None
    """``--texts FILE``: Time these texts instead of SST-2 dev."""


@dataclass(frozen=True, kw_only=True)
class ServeFlags(ModelFlag, flags.ThreadsFlag, LengthFlag, AgainstFlag, RoundsFlags):
    against: str | None = None
    """``--against SIDE``: ``transformers`` (FastAPI around its pipeline), ``transformers-batching``
    or ``infinity``: time it too, in turn."""
    infinity: str = "infinity_emb"
    """``--infinity COMMAND``: The command of the package infinity-emb, in its own environment."""
    requests: int = field(default=400, metadata={"min": 1})
    """``--requests N``: Requests with each number of clients, or 8 a client where that is more."""
    texts: str | None = None
    """``--texts FILE``: Send these texts instead of SST-2 dev and Wikipedia in turn."""


@dataclass(frozen=True, kw_only=True)
class FinetuneFlags(
    ModelFlag, TrainingAgainstFlag, PrecisionFlag, ProfileFlag, LengthFlag, RoundsFlags
):
    steps: int = field(default=40, metadata={"min": 1})
    """``--steps N``: Timed steps of 32 texts."""
    freeze_layers: int = field(default=0, metadata={"min": 0})
    """``--freeze-layers K``: Do not train the embeddings and the K lowest layers."""
    dropout: float | None = field(default=None, metadata={"min": 0.0, "max": 0.9})
    """Dropout on both sides. If not set: that of MODEL."""


@dataclass(frozen=True, kw_only=True)
class InstancesFlags(BenchDeviceFlag, RoundsFlags):
    size: str = "mini"
    """``--size SIZE``: Size of the model, with random weights."""
    data: str | None = None
    """``--data DIR``: Corpus that build-corpus wrote. If not set: a small one."""
    steps: int = field(default=20, metadata={"min": 4})
    """``--steps N``: Steps to take; the first 3 are not timed, nor a GPU's warm-up."""
    tokens_per_step: int = field(default=8192, metadata={"min": 128})
    """``--tokens-per-step N``: Tokens in each step."""

    def work(self, directory: str, **more: Any) -> "PretrainingWork":
        """The work on a corpus; raises here what would be a traceback in the processes."""
        from tidybert.configuration import BertConfig
        from tidybert.corpus.token_shards import TokenCorpus
        from tidybert.timing.work import PretrainingWork

        BertConfig.from_name(self.size)
        TokenCorpus(directory)
        return PretrainingWork(
            self.size,
            directory,
            self.steps,
            self.tokens_per_step,
            device=self.named_device(),
            threads=self.threads,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class PretrainFlags(ProfileFlag, InstancesFlags, TrainingAgainstFlag, PrecisionFlag):
    max_seq_length: int = field(default=128, metadata={"min": 16})
    """``--max-seq-length N``: Most tokens of a sequence."""
    dropout: float = field(default=0.1, metadata={"min": 0.0, "max": 0.9})
    """Dropout on both sides."""
    compile: bool = False
    """``--compile``: Use torch.compile on both sides."""
    micro_batch: str | None = None
    """``--micro-batch N``: Tokens at once, or auto. On a CPU the other side takes a whole step."""
