"""The configuration of a new encoder: a size or a config.json, with sizes of your own."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from tidybert.catalog import is_size
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.storage.model_files import WEIGHTS_FILE
from tidybert.training.argument_checks import check_arguments

_KEYS: Final = {
    # flag: key of config.json
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "max_positions": "max_position_embeddings",
}
_HEAD_WIDTH: Final = 64


@dataclass(frozen=True)
class ModelShape:
    """Sizes that replace those of a size or a config.json; None keeps them."""

    PANEL: ClassVar = "Task"

    layers: int | None = None
    """``--layers N``: Encoder layers of a new model. If not set: those of SIZE."""
    hidden: int | None = None
    """``--hidden N``: Width of a new model. If not set: that of SIZE."""
    heads: int | None = None
    """``--heads N``: Attention heads of a new model. If not set: one for each 64 of --hidden."""
    intermediate: int | None = None
    """``--intermediate N``: Width of a new model's feed-forward layers. If not set: 4 times
    --hidden."""
    max_positions: int | None = None
    """``--max-positions N``: Longest sequence that a new model takes. If not set: 512."""

    def __post_init__(self) -> None:
        check_arguments(self, above_0=tuple(_KEYS))

    @property
    def given(self) -> dict[str, int]:
        """The sizes that are given, by flag."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def values(self) -> dict[str, int]:
        """The sizes by the keys of config.json; heads and feed-forward follow the width."""
        found = self.given
        if self.hidden is not None:
            if self.heads is None:
                if self.hidden % _HEAD_WIDTH:
                    raise UsageError(
                        f"{param('hidden', self.hidden)} is not a multiple of {_HEAD_WIDTH}: give "
                        f"{param('heads')}, a number that divides it"
                    )
                found["heads"] = self.hidden // _HEAD_WIDTH
            found.setdefault("intermediate", 4 * self.hidden)
        return {_KEYS[name]: value for name, value in found.items()}


def is_new(model: str | Path) -> bool:
    """Whether MODEL begins with new weights: a size, or a config.json."""
    return is_size(model) or _is_config(model)


def new_config(model: str | Path, shape: ModelShape, vocab_size: int) -> BertConfig:
    """The configuration of a new model with the corpus's vocabulary.

    Raises UsageError for a config.json of another number of tokens or with weights beside it, and
    ConfigError for sizes that do not fit each other.
    """
    if is_size(model):
        config = BertConfig.from_name(str(model), vocab_size=vocab_size)
        return _reshaped(config, shape)
    path = Path(model)
    if (path.parent / WEIGHTS_FILE).exists():
        raise UsageError(
            f"{model} has weights beside it: name {path.parent} to train these further, or copy "
            f"{path.name} to another folder to begin with new ones"
        )
    config = BertConfig.from_file(path)
    if type(config) is not BertConfig:
        raise UsageError(f"{model}: model_type is {config.model_type}; pretrain trains a bert")
    if config.vocab_size != vocab_size:
        raise UsageError(
            f"{model}: vocab_size is {config.vocab_size:,}, and the corpus has {vocab_size:,} "
            "tokens; write that number into the file, or build the corpus with that vocabulary"
        )
    return _reshaped(config, shape)


def _reshaped(config: BertConfig, shape: ModelShape) -> BertConfig:
    changes: dict[str, Any] = dict(shape.values())
    return replace(config, **changes)


def refuse_shape(model: str | Path, shape: ModelShape) -> None:
    """Raise UsageError for sizes beside a MODEL that has weights."""
    for name, value in shape.given.items():
        raise UsageError(
            f"{param(name, value)} is for new weights, and {model} has weights; name a size such "
            "as mini, or a config.json"
        )


def _is_config(model: str | Path) -> bool:
    path = Path(model)
    return path.suffix == ".json" and path.is_file()
