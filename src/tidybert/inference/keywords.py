"""The keyword arguments of what answers, and the parameters of the vectors' estimator.

They are made from the options that flags are made from; keywords.pyi has them in writing, for type
checkers and editors.
"""

from tidybert.inference.options import (
    EmbedderOptions,
    OpeningOptions,
    PairOptions,
    PredictorOptions,
)
from tidybert.options import keywords, parameters

OpeningKeywords = keywords(__name__, "OpeningKeywords", OpeningOptions)
PairKeywords = keywords(__name__, "PairKeywords", PairOptions)
PredictorKeywords = keywords(__name__, "PredictorKeywords", PredictorOptions)
EmbedderKeywords = keywords(__name__, "EmbedderKeywords", EmbedderOptions)
VectorParameters = parameters(__name__, "VectorParameters", EmbedderOptions)
