"""What a user can get wrong, each with what was given, what was expected and what to do.

Every error that a user can cause derives from TidyBertError, itself a ValueError.  The shell prints
its message without a traceback and leaves with ``exit_status``: 1 for work that failed, 2 for wrong
usage.  A mistake of our own is an AssertionError and keeps its traceback.
"""


class TidyBertError(ValueError):
    """Base of every error that a user can cause; the message is written for that user."""

    exit_status = 1


class UsageError(TidyBertError):
    """A flag or an argument has a value that cannot be used."""

    exit_status = 2


class ConfigError(TidyBertError):
    """A model's configuration has an unknown, missing or inconsistent key."""


class VocabularyError(TidyBertError):
    """A vocabulary file is missing, damaged or does not fit the model."""


class TextError(TidyBertError):
    """A text cannot be tokenised: it is no string, or holds a lone surrogate."""


class ModelNotFoundError(TidyBertError):
    """A MODEL names neither installed weights, nor a published size, nor a directory."""


class WeightsError(TidyBertError):
    """Weights are missing, damaged, not finite, or of a shape that does not fit the model."""


class DeviceMemoryError(TidyBertError):
    """A device has too little memory for a model and what it is to work on at once."""


class DataError(TidyBertError):
    """A data file cannot be read as asked; the message names the file and line."""


class TrainingError(TidyBertError):
    """Training cannot start, go on or resume; the message says from where it can go on."""


class DivergedError(TrainingError):
    """The loss or the gradient is not finite; with other arguments it may be."""
