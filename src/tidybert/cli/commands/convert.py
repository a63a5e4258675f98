"""``tidybert convert``: a MODEL in the form of another program."""

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line
from tidybert.errors import UsageError, suggestion
from tidybert.files.wording import count_of

_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, kw_only=True)
class ConvertFlags(flags.PickleFlag, flags.JsonFlag):
    to: str
    """``--to FORM``: The form to write: huggingface, tensorflow (the original code's checkpoint) or
    sentence-transformers."""
    dtype: str | None = None
    """Store the weights as float32, float16 or bfloat16. If not set: as in MODEL."""
    max_shard_size: str | None = None
    """``--max-shard-size SIZE``: Cut the weights into files of at most this size, such as 500MB or
    2GB. If not set: one file."""


@takes(given=ConvertFlags)
def convert(
    model: flags.ModelArgument,
    directory: Annotated[Path, typer.Argument(metavar="DST", help="New directory to write.")],
    *,
    given: ConvertFlags,
) -> None:
    """Write MODEL in the form of another program, with every head that the form has a place for.

    tidybert reports what gets lost, and reads each form as a MODEL.
    """
    from tidybert.checkpoints.converting import WRITERS
    from tidybert.checkpoints.converting import convert as write
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.whole_model import DTYPES

    _check("--to", given.to, WRITERS)
    if given.dtype is not None:
        _check("--dtype", given.dtype, DTYPES)
    done = write(
        ModelDirectory.open(model),
        directory,
        given.to,
        dtype=given.dtype,
        max_shard_bytes=_bytes(given.max_shard_size),
        allow_pickle=given.allow_pickle,
    )
    if given.json:
        print_json({**asdict(done), "directory": str(done.directory)})
        return
    for each in done.lost:
        note(f"lost: {each}")
    print_line(
        f"{done.directory}: {done.architecture} for {done.form}, "
        f"{count_of(done.num_tensors, 'tensor')}, {done.num_parameters:,} parameters, "
        f"{' and '.join(done.dtypes)}"
    )


def _check(flag: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise UsageError(
            f"{flag} {value!r}{suggestion(value, known)}: expected one of {', '.join(known)}"
        )


def _bytes(size: str | None) -> int | None:
    """500MB as a number of bytes; raises UsageError for anything else."""
    if size is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9})(B|KB|MB|GB)", size.upper())
    if found is None or not int(found[1]):
        raise UsageError(f"--max-shard-size {size!r}: expected a size such as 500MB or 2GB")
    return int(found[1]) * _UNITS[found[2]]
