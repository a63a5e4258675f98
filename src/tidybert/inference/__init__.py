"""Load once, batch, decode."""

from tidybert.inference.loading import load
from tidybert.inference.predictor import Predictor

__all__ = ["Predictor", "load"]
