"""The limits on untrusted input, in one table.

Each limit is far above what a model or a data set holds, and low enough that a hostile file fills
neither memory nor time.  So no flag raises one; a message names the limit and the value found.
"""

from dataclasses import dataclass
from typing import Final

from tidybert.errors import LimitError


@dataclass(frozen=True)
class Limit:
    """The most of one thing that is read.

    Args:
        name: what is limited, as part of a sentence: "bytes of a JSON file".
        value: the most that passes.
        unit: of ``value``, in the plural: "bytes".
    """

    name: str
    value: int
    unit: str

    def check(self, found: int, where: object) -> None:
        """Raise LimitError if ``found`` is above the limit; ``where`` begins the message."""
        if found > self.value:
            raise self.error(f"{found:,}", where)

    def error(self, found: str, where: object) -> LimitError:
        """The error for a value that is above the limit, or known only as "more than N"."""
        return LimitError(
            f"{where}: {found} {self.unit}; the limit for {self.name} is {self.value:,}"
        )


# Data: labelled texts and corpora.
LINE_BYTES: Final = Limit("one line", 2**25, "bytes")
ROW_BYTES: Final = Limit("one row", 2**28, "bytes")
CELL_CHARACTERS: Final = Limit("one cell", 2**24, "characters")
DATA_JSON_BYTES: Final = Limit("a JSON file of data", 2**30, "bytes")
COLUMNS: Final = Limit("columns", 10_000, "columns")
LABELS: Final = Limit("labels", 5_000, "labels")
UNPACKED_BYTES: Final = Limit("a compressed file", 2**36, "bytes unpacked")
UNPACKED_RATIO: Final = Limit("a compressed file", 200, "bytes unpacked from each byte")
"""Counts from the first UNPACKED_RATIO_FROM bytes on: a short text may well repeat itself."""
UNPACKED_RATIO_FROM: Final = 2**26
SHEET_BYTES: Final = Limit("a spreadsheet", 2**30, "bytes")
SHEET_MEMORY: Final = Limit("a spreadsheet", 2**31, "bytes of memory")
FOLDER_FILES: Final = Limit("a folder of texts", 2**20, "files")
MANIFEST_BYTES: Final = Limit("corpus.json", 2**28, "bytes")

# A MODEL or a RUN.
LONGEST_NAME: Final = 255
"""Bytes of a file's name; no file system has longer ones."""
JSON_BYTES: Final = Limit("a JSON file", 2**24, "bytes")
JSON_DEPTH: Final = Limit("JSON", 100, "levels of nesting")
TOKENIZER_BYTES: Final = Limit("a vocabulary's file", 2**25, "bytes")
NORMALIZER_STEPS: Final = Limit("a tokenizer's normalizer or decoder", 100, "steps")
NORMALIZER_GROWTH: Final = Limit("what a normalizer or decoder makes of one", 64, "characters")
VOCABULARY_TOKENS: Final = Limit("a vocabulary", 2_000_000, "tokens")
HUB_FILES: Final = Limit("a model on a hub", 1_000, "files")
TENSORS: Final = Limit("one file of weights", 100_000, "tensors")
HEADER_BYTES: Final = Limit("the header of weights", 2**24, "bytes")
REPORT_BYTES: Final = Limit("an earlier report", 2**26, "bytes")
TREE_BYTES: Final = Limit("a tree of topics", 2**33, "bytes")
HASHES_BYTES: Final = Limit("the hashes of training texts", 2**23 + 2**10, "bytes")
LOG_BYTES: Final = Limit("a log of training", 2**28, "bytes")
TABLE_BYTES: Final = Limit("a TensorFlow checkpoint's index", 2**19, "bytes")
"""Counts the file, each block when unpacked, and all names with what belongs to them."""
GRAPH_BYTES: Final = Limit("an ONNX graph", 2**31, "bytes")
GRAPH_NODES: Final = Limit("an ONNX graph", 20_000, "operations")
MESSAGE_FIELDS: Final = Limit("one message of Protocol Buffers", 100_000, "fields")
