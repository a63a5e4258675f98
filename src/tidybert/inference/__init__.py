"""Load once, batch, decode."""

from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import load
from tidybert.inference.predictor import Predictor

__all__ = ["Embedder", "Predictor", "load"]
