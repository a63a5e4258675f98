"""Text to WordPiece ids and back; see ``tokenizer`` for the faces and ``basic`` for the rules."""

from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.encoding import Encoding
from tidybert.tokenization.tokenizer import BertTokenizer, IdArray
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
