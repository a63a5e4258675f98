"""Load once, batch, decode."""

from tidybert.inference.embedding import Embedder
from tidybert.inference.fill_mask import MaskFiller
from tidybert.inference.loading import load
from tidybert.inference.next_sentence import NextSentencePredictor
from tidybert.inference.predictor import Predictor

__all__ = ["Embedder", "MaskFiller", "NextSentencePredictor", "Predictor", "load"]
