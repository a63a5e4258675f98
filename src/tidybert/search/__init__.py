"""Vectors found again: an index of texts on disk, exact search in it, and a second ranking."""

from tidybert.search.index import Hit, Index
from tidybert.search.index_files import write_index

__all__ = ["Hit", "Index", "write_index"]
