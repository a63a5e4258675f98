"""The keyword arguments of what answers, and the parameters of the vectors' estimator.

They are made from the options that flags are made from; keywords.pyi has them in writing, for type
checkers and editors.
"""

from tidybert.inference import options
from tidybert.options import keywords, parameters

OpeningKeywords = keywords(__name__, "OpeningKeywords", options.OpeningOptions)
PairKeywords = keywords(__name__, "PairKeywords", options.PairOptions)
PredictorKeywords = keywords(__name__, "PredictorKeywords", options.PredictorOptions)
EmbedderKeywords = keywords(__name__, "EmbedderKeywords", options.EmbedderOptions)
VectorParameters = parameters(__name__, "VectorParameters", options.EmbedderOptions)
