"""Explanations of a model: attention, layers, word vectors, and why an answer came out."""

from tidybert.explain.explainer import Explainer

__all__ = ["Explainer"]
