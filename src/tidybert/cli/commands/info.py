"""``tidybert info``: what a MODEL or a RUN is, what it was made from and what it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.checkpoints.example_kinds import KINDS, name_of
from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import print_json, print_line, print_table
from tidybert.system.terminal import clock

SHOWN: Final = 20
# Of a checkpoint's metrics; a line has 80 columns.
_IN_TABLE: Final = ("mlm_loss", "lm_loss", "mlm_accuracy", "lm_accuracy", "nsp_accuracy")
_MOST_COLUMNS: Final = 4


@dataclass(frozen=True, kw_only=True)
class InfoFlags(flags.JsonFlag):
    verify: bool = False
    """``--verify``: Also compare the files with the hashes saved with them; a swapped or edited
    file is an error that names it."""
    checkpoints: bool = False
    """``--checkpoints``: Show the checkpoints that a RUN keeps in one table; each is a MODEL,
    RUN@STEP."""


@takes(given=InfoFlags)
def info(model: flags.ModelArgument, *, given: InfoFlags) -> None:
    """Show what a MODEL or a RUN is: task, labels, sizes, metrics, origin, and what it needs.

    Of an index it shows the settings, the texts and how they are searched.
    On a RUN whose training has not ended it shows the last step, and how to continue.
    """
    from tidybert.catalog import find_model, is_size
    from tidybert.checkpoints.unfinished import find_unfinished

    if given.checkpoints:
        _show_checkpoints(find_model(model), as_json=given.json)
        return
    found: dict[str, Any]
    if is_size(model):
        from tidybert.configuration import BertConfig

        found = {"model": model, "state": "a size with random weights"}
        found |= {"sizes": _sizes(BertConfig.from_name(model))}
    elif (Path(model) / "index.json").exists():
        from tidybert.search.index import Index

        found = Index(model).facts()
    else:
        directory = find_model(model)
        unfinished = find_unfinished(directory)
        if unfinished is None:
            found = _finished(directory)
        else:
            found = {
                "model": model,
                "state": f"unfinished: {unfinished.place()}",
                "task": unfinished.arguments.get("task"),
                "step": unfinished.step,
                "num_steps": unfinished.num_steps,
                "go_on": unfinished.command(),
            }
    if given.verify:
        from tidybert.checkpoints.model_directory import verify

        verified = verify(model)
        found["verified"] = verified.against or "nothing to compare with: no tidybert.json"
        found["sha256"] = verified.sha256
    found = {name: value for name, value in found.items() if value not in (None, {}, [])}
    if given.json:
        print_json(found)
        return
    hashes = found.pop("sha256", {})
    for name, value in found.items():
        print_line(f"{name.replace('_', ' ')}: {_shown(name, value)}")
    for name, digest in hashes.items():
        print_line(f"{digest}  {name}")


def _show_checkpoints(run: Path, *, as_json: bool) -> None:
    from tidybert.reporting.training_history import checkpoint_rows

    rows = checkpoint_rows(run)
    if as_json:
        print_json({"steps": rows})
        return
    named = dict.fromkeys(name for each in rows for name in each["metrics"])
    metrics = [name for name in named if name in _IN_TABLE or name.startswith("probe_")]
    metrics = metrics or [*named][:_MOST_COLUMNS]
    print_table(
        {"STEP": "right", "measured at": "right", **dict.fromkeys(metrics, "right"), "": "left"},
        [
            (
                f"{each['step']:,}",
                "-" if each["measured"] is None else f"{each['measured']:,}",
                *(_shown("", each["metrics"].get(name, "-")) for name in metrics),
                ", ".join(
                    word
                    for word, holds in (("best", each["best"]), ("kept", each["kept_for_good"]))
                    if holds
                ),
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
    from tidybert.storage.model_files import ARGUMENTS_FILE

    opened = ModelDirectory(directory)
    config, metadata = opened.config, opened.metadata
    arguments, record = read_arguments(directory / ARGUMENTS_FILE)
    labels = metadata.label_names if metadata else opened.head.label_names
    bytes_on_disk = sum(each.stat().st_size for each in directory.iterdir() if each.is_file())
    return {
        "model": str(directory),
        "state": "a finished RUN" if arguments else "a MODEL",
        "task": metadata.task if metadata else None,
        "heads": list(opened.head.architectures),
        "inputs": name_of(metadata.inputs) if metadata else None,
        "activation": opened.head.activation,
        "labels": list(labels or ()),
        "max_seq_length": metadata.max_seq_length if metadata else None,
        "sizes": _sizes(config),
        "unread_keys": unknown_keys(opened.description),
        "vectors": _vectors(opened),
        "metrics": _numbers(metadata.metrics) if metadata else None,
        "made_from": arguments.get("model"),
        "teacher": record.get("teacher"),
        "data": record.get("files"),
        "num_train": record.get("num_train"),
        "num_dev": record.get("num_dev"),
        "num_unlabelled": record.get("num_unlabelled"),
        "steps": record.get("num_steps"),
        "seconds": record.get("seconds"),
        "versions": record.get("versions"),
        "needs": {
            "bytes_on_disk": bytes_on_disk,
            "bytes_of_weights_in_memory": 4 * config.num_parameters,
            "max_positions": config.max_position_embeddings,
            "tidybert": metadata.tidybert_version if metadata else None,
        },
    }


def _sizes(config: Any) -> dict[str, int]:
    return {
        "num_parameters": config.num_parameters,
        "num_hidden_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "vocab_size": config.vocab_size,
    }


def _vectors(directory: Any) -> dict[str, Any] | None:
    """How a directory of sentence-transformers makes a vector of a text; None for another."""
    from tidybert.checkpoints.sentence_reading import read_sentence_form
    from tidybert.storage.model_files import MODULES_FILE

    if not (directory.path / MODULES_FILE).exists():
        return None
    form = read_sentence_form(directory)
    found = {
        "pooling": form.pooling,
        "dense": [each.linear.out_features for each in form.dense],
        "normalize": form.normalize,
        "max_seq_length": form.max_seq_length,
        "truncate_dim": form.truncate_dim,
        "prompts": [name for name, text in form.prompts.items() if text],
        "default_prompt_name": form.default_prompt_name,
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: each for name, each in metrics.items() if isinstance(each, int | float)}


def _shown(name: str, value: Any) -> str:
    """A value as a person reads it."""
    if name == "seconds":
        return clock(value)
    if name == "inputs":
        return KINDS[value].plural
    if isinstance(value, Mapping):
        parts = [f"{key.replace('_', ' ')} {_shown('', each)}" for key, each in value.items()]
        return ", ".join(parts)
    if isinstance(value, list):
        more = f" and {len(value) - SHOWN:,} more" if len(value) > SHOWN else ""
        return ", ".join(map(str, value[:SHOWN])) + more
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
