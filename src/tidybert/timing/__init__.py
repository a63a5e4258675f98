"""Timing beside transformers: both sides in one run, on the same work, in turn."""
