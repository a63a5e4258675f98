"""Vectors found again: an index of texts on disk, exact search in it, and a second ranking."""

from tidybert.search.hit import Hit
from tidybert.search.index import Index
from tidybert.search.index_writer import write_index

__all__ = ["Hit", "Index", "write_index"]
