"""Text to WordPiece ids and back: read ``basic``, ``wordpiece``, then ``tokenizer``."""

from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.fast.batch_encoder import IdArray
from tidybert.tokenization.tokenizer import BertTokenizer, Encoding
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from tidybert.tokenization.wordpiece import WordPiece

__all__ = [
    "SPECIAL_TOKENS",
    "BasicTokenizer",
    "BertTokenizer",
    "Encoding",
    "IdArray",
    "Vocabulary",
    "WordPiece",
]
