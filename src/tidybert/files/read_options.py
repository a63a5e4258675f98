"""How a file of labelled texts is to be read, one field a flag, and what public files need."""

from dataclasses import dataclass, field, fields
from typing import ClassVar, Final

from tidybert.errors import UsageError, param

ROLES: Final = ("text", "text_pair", "label")
DELIMITER_NAMES: Final = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file of texts and labels; each field is the flag of the same name.

    A column is named by its name in the header, or by its number, counted from 0: the first column
    is 0, the second 1.  A name in the header wins over a number, so that a column headed "3" is
    found by ``--text 3``; an int is always a number.  Raises UsageError for a value that no file
    could be read with.
    """

    PANEL: ClassVar = "Data"

    text: str | int | None = None
    """``--text``: Column of the text, by name or number from 0. If not set: guessed from common
    names."""
    text_pair: str | int | None = None
    """``--text-pair``: Column of the second text of a pair. If not set: none if --text is set, else
    guessed from common names."""
    label: str | int | None = None
    """``--label``: Column of the class or score. If not set: guessed from common names.
    --multi-label takes several columns of 0 and 1, such as toxic,insult."""
    label_separator: str | None = None
    """``--label-separator``: With --multi-label, the characters between a text's labels, such as
    semicolon. If not set: comma. JSON and Parquet may contain lists."""
    format: str | None = None
    """``--format``: ``csv``, tsv, jsonl, json, parquet, text (one a line), label-text (label,
    space, text), swag, codah or conll. If not set: by suffix or content."""
    header: bool | None = None
    """``--header/--no-header``: Read column names from the first row of csv or tsv, or not. If not
    set: tidybert looks for the columns there."""
    delimiter: str | None = None
    """``--delimiter``: Character between cells, or tab, comma, semicolon or pipe. If not set: comma
    in csv, tab in tsv."""
    quoting: bool | None = None
    """``--quoting/--no-quoting``: Read "..." as one cell that may contain delimiters and line ends,
    or as plain text. If not set: plain text only between tabs."""
    encoding: str | None = None
    """``--encoding``: Encoding of the file. If not set: utf-8, with or without a byte-order
    mark."""
    skip_rows: int = field(default=0, metadata={"min": 0})
    """``--skip-rows N``: Pass over the first N lines of csv or tsv, such as a title."""

    def __post_init__(self) -> None:
        """Check each value by itself; what depends on the file is checked on reading."""
        for role in ROLES:
            value = getattr(self, role)
            if isinstance(value, int) and value < 0:
                raise UsageError(
                    f"{param(role, value)}: columns are numbered from 0, left to right"
                )
        if self.delimiter is not None:
            delimiter = DELIMITER_NAMES.get(self.delimiter, self.delimiter)
            if delimiter.isspace() and delimiter != "\t":
                raise UsageError(
                    f"{param('delimiter')} {delimiter!r}: texts hold spaces; for a label, white "
                    f"space and a text on each line give {param('format', 'label-text')}"
                )
            if len(delimiter) != 1 or delimiter in '"\0':
                raise UsageError(
                    f"{param('delimiter')} {delimiter!r}: give one character other than a quote, "
                    f"or one of {', '.join(name for name in DELIMITER_NAMES if name.isalpha())}"
                )
        if self.skip_rows < 0:
            raise UsageError(f"{param('skip_rows', self.skip_rows)}: give a number of lines")
        if self.label_separator == "":
            raise UsageError(
                f"{param('label_separator')} '': give the characters between labels, such as ;"
            )
        try:
            "a".encode(self.codec())
        except (LookupError, ValueError):
            raise UsageError(
                f"{param('encoding')} {self.encoding!r}: not an encoding of text; give a name such "
                "as utf-8, latin-1, cp1252 or utf-16"
            ) from None

    def codec(self) -> str:
        """The encoding of the file."""
        return "utf-8" if self.encoding is None else self.encoding

    def separator(self, file_format: str) -> str:
        """The character between the cells of a csv or tsv file."""
        default = "\t" if file_format == "tsv" else ","
        given = default if self.delimiter is None else self.delimiter
        return DELIMITER_NAMES.get(given, given)

    def quotes(self, file_format: str) -> bool:
        """Whether quotes enclose cells: given, or on except between tabs."""
        return self.separator(file_format) != "\t" if self.quoting is None else self.quoting

    def between_labels(self) -> str:
        """The characters between the labels of a text that has several."""
        given = "," if self.label_separator is None else self.label_separator
        return DELIMITER_NAMES.get(given, given)

    def flags(self) -> list[str]:
        """The command-line flags that make these options, defaults left out."""
        words: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value == each.default:
                continue
            flag = each.name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", "tab" if value == "\t" else str(value)]
        return words


PUBLISHED_LAYOUTS: Final = {
    "glue/SST-2/*.tsv": ReadOptions(text="sentence", label="label"),
    "glue/RTE/*.tsv": ReadOptions(text="sentence1", text_pair="sentence2", label="label"),
    "glue/QNLI/dev.tsv": ReadOptions(text="question", text_pair="sentence", label="label"),
    "glue/MRPC/*.tsv": ReadOptions(text="#1 String", text_pair="#2 String", label="Quality"),
    "glue/STS-B/*.csv": ReadOptions(text=5, text_pair=6, label=4, format="tsv"),
    "glue/QQP/*.json": ReadOptions(text="text_a", text_pair="text_b", label="label"),
    "glue/MNLI/*.json": ReadOptions(text="text_a", text_pair="text_b", label="label"),
    "glue/QNLI/*.json": ReadOptions(text="text_a", text_pair="text_b", label="label"),
    "text/sms_spam/SMSSpamCollection": ReadOptions(text=1, label=0, format="tsv"),
    "text/banking77/t*.csv": ReadOptions(text="text", label="category"),
    "text/trec/TREC.*.all": ReadOptions(format="label-text", encoding="latin-1"),
    "zh/chnsenticorp/*.tsv": ReadOptions(text="text_a", label="label"),
}
"""How public data sets are read as they were published: file patterns and their options."""
