"""Load once, batch, decode."""

from tidybert.inference.cross_encoder import CrossEncoder
from tidybert.inference.embedding import Embedder
from tidybert.inference.fill_mask import MaskFiller
from tidybert.inference.generation import TextGenerator
from tidybert.inference.loading import load
from tidybert.inference.next_sentence import NextSentencePredictor
from tidybert.inference.predictor import Predictor
from tidybert.inference.scoring import TextScorer

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
