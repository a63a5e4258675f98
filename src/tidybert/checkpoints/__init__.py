"""Weights on disk: safe storage, the table of Hugging Face names, and MODEL directories."""
