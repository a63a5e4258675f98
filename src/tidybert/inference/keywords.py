"""The keyword arguments of ``Embedder`` and ``zero_shot``, and the parameters of BertVectorizer.

They are made from the options that flags are made from; keywords.pyi has them in writing, for type
checkers and editors.
"""

from tidybert.inference.options import EmbedderOptions, PredictorOptions
from tidybert.options import keywords, parameters

PredictorKeywords = keywords(__name__, "PredictorKeywords", PredictorOptions)
EmbedderKeywords = keywords(__name__, "EmbedderKeywords", EmbedderOptions)
VectorParameters = parameters(__name__, "VectorParameters", EmbedderOptions)
