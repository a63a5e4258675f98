"""The errors that a user can cause: each says what was given, what was expected and what to do.

They derive from TidyBertError, itself a ValueError.  The shell prints the message without a
traceback and exits with ``exit_status``: 1 for work that failed, 2 for wrong usage.  A mistake of
our own is an AssertionError and keeps its traceback.

A message names parameters by ``param`` and the rows of examples by ``LINE``.  Each face spells them
its own way: ``in_shell`` writes --max-seq-length 128, ``in_python`` writes max_seq_length=128.
"""

import re
import shlex
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

LINE: Final = "\ue003ine"
"""The word "line" before the row of an example: f"{LINE} 3", or f"{LINE}s 3, 7"."""
# Marks around a parameter and before its value: private code points, which no text has by accident.
# A marked parameter is as long as the shell's spelling, so that wrapped messages keep their width.
_BEGIN: Final = "\ue000"
_VALUE: Final = "\ue001"
_END: Final = "\ue002"
_PARAMETER: Final = re.compile(f"{_BEGIN}([^{_VALUE}{_END}]*)(?:{_VALUE}([^{_END}]*))?{_END}")

# Of a line of a message, where it is cut.
_LONGEST_END: Final = 400

_NO_MEMORY: Final = re.compile(
    "(?i)out of memory|allocate memory|not enough memory"
    # A thread needs memory for its stack.
    "|can't start new thread"
    # oneDNN says no more about its own.
    "|could not create a (primitive|memory object)"
    # cuBLAS has no memory left for its workspace.
    "|CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
)


def param(name: str, value: object = None) -> str:
    """A parameter, and the value it has or needs, as part of a message.

    Args:
        name: as in Python, ``max_seq_length``.
        value: None names the parameter alone; a bool is a switch (--header, --no-header).

    >>> in_shell(f"give {param('format', 'json')} or {param('header', False)}")
    'give --format json or --no-header'
    >>> in_python(f"give {param('format', 'json')} or {param('header', False)}")
    "give format='json' or header=False"
    """
    return f"{_BEGIN}{name}{'' if value is None else f'{_VALUE}{value}'}{_END}"


def in_shell(message: str) -> str:
    """A message with parameters as the command line spells them."""
    return _PARAMETER.sub(_flag, message).replace(LINE, "line")


def in_python(message: str, *, rows: str = "line") -> str:
    """A message with parameters as Python spells them, and ``rows`` in place of "line"."""
    return _PARAMETER.sub(_keyword, message).replace(LINE, rows)


OTHER_NAMES: Final = {
    "batch_size": "train_batch_size", "bs": "train_batch_size", "corpus": "data", "data": "train",
    "dev_file": "dev", "epochs": "num_train_epochs", "eval": "evaluate", "eval_file": "dev",
    "fine_tune": "finetune", "fit": "finetune", "k": "top_k", "label_column": "label",
    "lr": "learning_rate", "max_iter": "num_train_epochs", "max_len": "max_seq_length",
    "max_length": "max_seq_length", "model_name": "model", "num_epochs": "num_train_epochs",
    "num_train_steps": "max_steps", "output": "out", "output_dir": "out",
    "per_device_train_batch_size": "train_batch_size", "random_state": "seed",
    "steps": "max_steps", "test": "evaluate", "test_size": "dev_fraction", "text_column": "text",
    "topk": "top_k", "train": "finetune", "train_file": "train", "validation": "dev",
    "validation_file": "dev", "vocab_size": "size", "warmup_ratio": "warmup_proportion",
}  # fmt: skip
"""What other programs call a parameter or a command, and its name here."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' with the known name closest to ``name``, or '' if none is close."""
    known = list(known)
    if (ours := OTHER_NAMES.get(str(name))) in known:
        return f"; it is {ours!r} here"
    import difflib

    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


_WHOLE: Final = "tidybert (tidybert-light alone only answers)"
_OF_THE_WHOLE: Final = {
    "torch": ("PyTorch", _WHOLE),
    "safetensors": ("safetensors", _WHOLE),
    "sklearn": ("scikit-learn", _WHOLE),
    "scipy": ("SciPy", _WHOLE),
    "pyarrow": ("PyArrow (Parquet, Arrow)", "pyarrow"),
    "jinja2": ("Jinja (reports, cards, pages)", "jinja2"),
    "markupsafe": ("Jinja (reports, cards, pages)", "jinja2"),
    "python_calamine": ("python-calamine (sheets)", "python-calamine"),
    "xlsxwriter": ("XlsxWriter (sheets)", "XlsxWriter"),
}
"""By package: its name, and what pip installs for it."""


def has_package(name: str) -> bool:
    """Whether a package is installed; it is not loaded."""
    return find_spec(name) is not None


def missing_package(error: BaseException) -> "UsageError | None":
    """What to install, where an import failed for want of a package that answers do not need."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in _OF_THE_WHOLE:
        return None
    package, installed = _OF_THE_WHOLE[name]
    return UsageError(f"this needs {package}, which is not installed: pip install {installed}")


def require_package(name: str) -> None:
    """Raise what ``missing_package`` says of a package that is not installed."""
    if not has_package(name):
        raise missing_package(ModuleNotFoundError(name=name)) or UsageError(f"no package {name}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or PyTorch found too little memory, of the machine or of a device."""
    if isinstance(error, MemoryError):
        return True
    # PyTorch has a class of its own for devices alone.
    found = isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))
    return bool(found)


def _cut(line: str) -> str:
    if len(line) <= 3 * _LONGEST_END:
        return line
    begin, end = line[:_LONGEST_END], line[-_LONGEST_END:]
    # Not within a parameter.
    if begin.count(_BEGIN) > begin.count(_END):
        begin = begin[: begin.rindex(_BEGIN)]
    if end.count(_END) > end.count(_BEGIN):
        end = end[end.index(_END) + 1 :]
    return f"{begin} … {end}"


def _flag(found: re.Match[str]) -> str:
    name, value = found[1].replace("_", "-"), found[2]
    if value in ("True", "False"):
        return f"--{name}" if value == "True" else f"--no-{name}"
    return f"--{name}" if value is None else f"--{name} {shlex.quote(value)}"


def _keyword(found: re.Match[str]) -> str:
    name, value = found.groups()
    if value is None:
        return str(name)
    is_plain = re.fullmatch(r"True|False|-?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", value)
    return f"{name}={value if is_plain else repr(value)}"


class TidyBertError(ValueError):
    """Base of every error that a user can cause; its message is written for that user.

    ``str(error)`` spells parameters as Python does.  ``error.message`` keeps the marks, for
    ``in_shell`` and for other messages that quote it.
    """

    exit_status = 1

    @property
    def message(self) -> str:
        """Its lines, of which too long a one, such as a list of the user's, has lost its middle."""
        return "\n".join(map(_cut, str(self.args[0]).split("\n"))) if self.args else ""

    def __str__(self) -> str:
        return in_python(self.message)


class UsageError(TidyBertError):
    """A flag or an argument has a value that cannot be used."""

    exit_status = 2


class ConfigError(TidyBertError):
    """A model's configuration has an unknown, missing or inconsistent key."""


class VocabularyError(TidyBertError):
    """A vocabulary file is missing, damaged or does not fit the model."""


class TextError(TidyBertError):
    """A text cannot be tokenised: it is not a string, or holds a lone surrogate."""


class ModelNotFoundError(TidyBertError):
    """A MODEL names neither installed weights, nor a published size nor a directory."""


class WeightsError(TidyBertError):
    """Weights are missing, damaged, not finite, or of a shape that does not fit the model."""


class DeviceMemoryError(TidyBertError):
    """A device has too little memory for a model and one batch."""


class DataError(TidyBertError):
    """A data file cannot be read as asked; the message names the file and line."""


class LimitError(TidyBertError):
    """A file is larger, deeper or more numerous than is read; limits.py has the table."""


class DiskError(TidyBertError):
    """A file or directory cannot be written; the message says what is free, and what to do."""


class InUseError(TidyBertError):
    """Another process writes the same output; the message names that process."""


class TrainingError(TidyBertError):
    """Training cannot start, continue or resume; the message says from where it can."""


class DivergedError(TrainingError):
    """The loss or the gradient is not finite; other arguments may help."""


class DataWarning(UserWarning):
    """Something in the data deserves a look: duplicates, contradictions, texts that are cut."""


class CollapseWarning(UserWarning):
    """A trained model gives every example it was measured on the same answer."""


class TruncationWarning(DataWarning):
    """Texts were longer than ``max_seq_length`` and lost a part; an object says so once."""
