"""``tidybert convert``: a MODEL in the form of another program."""

import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line
from tidybert.errors import UsageError, suggestion
from tidybert.files.rows import count_of

if TYPE_CHECKING:
    from tidybert.export.onnx_export import Exported
    from tidybert.inference.predictor import Predictor

_ONNX: Final = "onnx"
_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, kw_only=True)
class ConvertFlags(flags.PickleFlag, flags.JsonFlag):
    to: str
    """``--to FORM``: The form to write: huggingface, tensorflow (the original code's checkpoint),
    sentence-transformers or onnx."""
    dtype: str | None = None
    """Store the weights as float32, float16 or bfloat16. If not set: as in MODEL."""
    max_shard_size: str | None = None
    """``--max-shard-size SIZE``: Cut the weights into files of at most this size, such as 500MB or
    2GB. If not set: one file."""
    int8: bool = False
    """``--int8``: With --to onnx, also write a model with weights in int8, about a quarter of the
    size."""
    dev: str | None = None
    """``--dev FILE``: With --to onnx, measure a finished RUN's ONNX files on these labelled
    examples."""


@takes(given=ConvertFlags)
def convert(
    model: flags.ModelArgument,
    directory: Annotated[Path, typer.Argument(metavar="DST", help="New directory to write.")],
    *,
    given: ConvertFlags,
) -> None:
    """Write MODEL in the form of another program, with every head that the form has a place for.

    tidybert reports what gets lost, and reads each form but onnx as a MODEL.
    """
    from tidybert.checkpoints.converting import DTYPES, WRITERS
    from tidybert.checkpoints.converting import convert as write
    from tidybert.checkpoints.model_directory import ModelDirectory

    _check("--to", given.to, [*WRITERS, _ONNX])
    _check_uses(given)
    if given.to == _ONNX:
        _export(model, directory, given)
        return
    if given.dtype is not None:
        _check("--dtype", given.dtype, DTYPES)
    done = write(
        ModelDirectory.open(model, allow_pickle=given.allow_pickle),
        directory,
        given.to,
        dtype=given.dtype,
        max_shard_bytes=_bytes(given.max_shard_size),
    )
    if given.json:
        print_json({**asdict(done), "directory": str(done.directory)})
        return
    _note_lost(done.lost)
    print_line(
        f"{done.directory}: {done.architecture} for {done.form}, "
        f"{count_of(done.num_tensors, 'tensor')}, {done.num_parameters:,} parameters, "
        f"{' and '.join(done.dtypes)}"
    )


def _check_uses(given: ConvertFlags) -> None:
    """Raise UsageError for a flag that the form has no use for."""
    is_onnx = given.to == _ONNX
    unused = {
        "--dtype": is_onnx and given.dtype,
        "--max-shard-size": is_onnx and given.max_shard_size,
        "--int8": not is_onnx and given.int8,
        "--dev": not is_onnx and given.dev,
    }
    for flag, is_given in unused.items():
        if is_given:
            raise UsageError(f"{flag} has no meaning with --to {given.to}: leave it out")


def _export(model: str, directory: Path, given: ConvertFlags) -> None:
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.export.onnx_export import export_onnx
    from tidybert.inference.predictor import Predictor

    predictor: Predictor | None = None
    if given.dev is not None:
        predictor = Predictor(
            model, device="cpu", precision="float32", allow_pickle=given.allow_pickle
        )
    source = ModelDirectory.open(model, allow_pickle=given.allow_pickle)
    done = export_onnx(source, directory, int8=given.int8)
    scores = {} if predictor is None else _scores(predictor, done, given)
    if given.json:
        print_json({**asdict(done), "directory": str(done.directory), "scores": scores})
        return
    _note_lost(done.lost)
    print_line(
        f"{done.directory}: {done.architecture} for {given.to}, outputs {', '.join(done.outputs)}"
    )
    for name, size in done.sizes.items():
        print_line(
            f"{name}: {size / 1e6:,.1f} MB, differs from tidybert by at most "
            f"{done.differences[name]:.1g}"
        )
    for name, score in scores.items():
        assert predictor is not None
        print_line(f"{predictor.task.metric} of {name} on {given.dev}: {score:.4f}")


def _scores(predictor: "Predictor", done: "Exported", given: ConvertFlags) -> dict[str, float]:
    """The task's metric of the model, and of each of its ONNX files."""
    from tidybert.export.onnx_export import OnnxModel, takes_choices
    from tidybert.inference.measurement import measure

    has_choices = takes_choices(done.architecture)
    models = {str(predictor.directory): predictor.model}
    models |= {name: OnnxModel(done.directory / name, has_choices) for name in done.sizes}
    scores: dict[str, float] = {}
    for name, model in models.items():
        predictor.model = model
        found = measure(predictor, given.dev, tell=note if not scores else lambda _line: None)
        scores[name] = float(found.metrics[predictor.task.metric])
    return scores


def _note_lost(lost: Iterable[str]) -> None:
    for each in lost:
        note(f"lost: {each}")


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
