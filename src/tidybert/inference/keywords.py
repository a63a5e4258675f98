"""The keyword arguments of ``Embedder``, and the parameters of the estimator of its vectors.

They are made from the options that flags are made from; keywords.pyi has them in writing, for type
checkers and editors.
"""

from tidybert.inference.options import EmbedderOptions
from tidybert.options import keywords, parameters

EmbedderKeywords = keywords(__name__, "EmbedderKeywords", EmbedderOptions)
VectorParameters = parameters(__name__, "VectorParameters", EmbedderOptions)
