"""Load once, batch, decode."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidybert.inference.predictor import CrossEncoder

__all__ = ["CrossEncoder"]

if not TYPE_CHECKING:  # else a misspelt name would have a type

    def __getattr__(name: str) -> object:
        # The options of this room load no torch.
        if name == "CrossEncoder":
            from tidybert.inference.predictor import CrossEncoder

            return CrossEncoder
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
