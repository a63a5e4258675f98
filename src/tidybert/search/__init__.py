"""Vectors found again: an index of texts on disk, exact search in it, and a second ranking."""
