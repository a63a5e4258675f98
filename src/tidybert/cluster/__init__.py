"""Work on many files by an engine that exists: the same answers, the same bytes (extra ``ray``)."""

from typing import Any

__all__ = ["BatchModel"]


def __getattr__(name: str) -> Any:
    if name == "BatchModel":
        from tidybert.cluster.batch_model import BatchModel

        return BatchModel
    raise AttributeError(name)
