"""Load once, batch, decode."""

from tidybert.inference.embedding import Embedder
from tidybert.inference.language_model import TextGenerator, TextScorer
from tidybert.inference.loading import load
from tidybert.inference.predictor import CrossEncoder, Predictor
from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor

__all__ = [
    "CrossEncoder",
    "Embedder",
    "MaskFiller",
    "NextSentencePredictor",
    "Predictor",
    "TextGenerator",
    "TextScorer",
    "load",
]
