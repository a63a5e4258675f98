"""What a model puts before texts of an index, and before queries.

The names are those that sentence-transformers looks for in ``encode_document`` and
``encode_query``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_reading import read_sentence_form

_DOCUMENT: Final = ("document", "passage", "corpus")
_QUERY: Final = ("query",)


def document_prompt(model: str | Path, *, allow_pickle: bool = False) -> str | None:
    """The name of a MODEL's prompt for texts to be found; None: its default one, or none."""
    return _first(_DOCUMENT, _prompts(model, allow_pickle))


def query_prompt(model: str | Path, *, allow_pickle: bool = False) -> str | None:
    """The name of a MODEL's prompt for queries; None: its default one, or none."""
    return query_name(_prompts(model, allow_pickle))


def query_name(prompts: Mapping[str, str]) -> str | None:
    """The name of the prompt for queries among these."""
    return _first(_QUERY, prompts)


def _prompts(model: str | Path, allow_pickle: bool) -> Mapping[str, str]:
    return read_sentence_form(ModelDirectory.open(model), allow_pickle=allow_pickle).prompts


def _first(names: tuple[str, ...], prompts: Mapping[str, str]) -> str | None:
    return next((name for name in names if name in prompts), None)
