"""Texts without labels: what topics are in them, and which words say so."""
