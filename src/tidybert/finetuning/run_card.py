"""The model card of a fine-tuned RUN: data, metrics with intervals, settings, limits and use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import PRETRAINED
from tidybert.checkpoints.example_kinds import ExampleKind
from tidybert.checkpoints.model_card import table, write_card
from tidybert.errors import in_shell
from tidybert.files.rows import count_of
from tidybert.finetuning.finetuning_job import FinetuningOptions
from tidybert.metrics.bootstrap import Interval, bootstrap, proportion_interval
from tidybert.modeling.heads import ARCHITECTURES
from tidybert.options import named
from tidybert.storage.model_files import RECORD
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask

# A card must not cost a training's time; the report draws more, for narrower ends.
_NUM_RESAMPLES: Final = 200
_MAX_SECONDS: Final = 1.0
_SHOWN_LABELS: Final = 50


def write_run_card(
    run: Path,
    task: AnyTask,
    arguments: Mapping[str, Any],
    answers: Answers[Any, Any] | None,
    inputs: ExampleKind | None,
    max_seq_length: int,
    name: str | None = None,
    *,
    in_transformers: bool = True,
) -> bool:
    """Write README.md, unless the RUN has one of the user's; returns whether it did."""
    name = name or run.name
    metrics = {} if answers is None else _numbers(answers.metrics())
    record = arguments[RECORD]
    paragraphs = [
        f"# {name}",
        _summary(task, arguments, inputs),
        "## Data",
        _data(record),
        *(["## Metrics", _measured(answers, metrics)] if answers is not None else []),
        "## Use",
        _use(name, task, inputs, in_transformers),
        "## Limits",
        _limits(task, max_seq_length, answers is not None),
        "## Settings",
        table(("setting", "value"), _settings(arguments)),
        _machine(record),
    ]
    return write_card(run, _metadata(name, task, metrics, record, in_transformers), paragraphs)


def _metadata(
    name: str,
    task: AnyTask,
    metrics: Mapping[str, float],
    record: Mapping[str, Any],
    in_transformers: bool,
) -> dict[str, Any]:
    """The head that hubs read."""
    tag = _pipeline_tag(task)
    data = record["files"].get("dev") or record["files"].get("train")
    result: dict[str, Any] = {"task": {"type": tag or task.name}}
    if data is not None:
        part = "" if "dev" in record["files"] else ", a part held out"
        result["dataset"] = {"name": f"{Path(data['file']).name}{part}", "type": "file"}
    shown = [each for each in task.meanings if each in metrics]
    result["metrics"] = [{"type": each, "value": round(metrics[each], 6)} for each in shown]
    is_measured = bool(shown) and data is not None
    return {
        "library_name": "transformers" if tag and in_transformers else None,
        "pipeline_tag": tag,
        "tags": ["tidybert", "bert"],
        "model-index": [{"name": name, "results": [result]}] if is_measured else None,
    }


def _pipeline_tag(task: AnyTask) -> str | None:
    """What model hubs call the work of the task's model."""
    if task.architecture == "BertModel":
        return "sentence-similarity"
    head = ARCHITECTURES.get(task.architecture)
    return None if head is None else head.pipeline_tag


def _summary(task: AnyTask, arguments: Mapping[str, Any], inputs: ExampleKind | None) -> str:
    origin = str(arguments["model"])
    package = PRETRAINED.get(origin)
    start = f"`{origin}`" + (f" (licence {package.licence})" if package else "")
    holds = "" if inputs is None else f" It takes {inputs.plural}."
    text = f"A BERT that was fine-tuned with tidybert to {task.name}, from {start}.{holds}"
    if arguments.get("num_layers"):
        text += f" It began with {arguments['num_layers']} of that model's layers."
    if teacher := arguments[RECORD].get("teacher"):
        score = f", {task.metric} {teacher[task.metric]:.4f}" if task.metric in teacher else ""
        text += (
            f" It learned the answers of the teacher `{teacher['run']}` "
            f"({count_of(teacher['num_hidden_layers'], 'layer')}{score}) too."
        )
    if task.names:
        shown = ", ".join(f"`{name}`" for name in task.names[:_SHOWN_LABELS])
        more = len(task.names) - _SHOWN_LABELS
        text += f"\n\nIts {len(task.names):,} labels: {shown}" + (
            f" and {more:,} more" if more > 0 else ""
        )
    return text


def _data(record: Mapping[str, Any]) -> str:
    files = record["files"]
    rows = []
    for part in ("train", "dev", "unlabelled"):
        if count := record.get(f"num_{part}"):
            file = files.get(part, {})
            is_held_out = part == "dev" and "train" in files
            name = file.get("file", "held out of train" if is_held_out else "")
            rows.append((part, count, name, file.get("bytes", ""), file.get("sha256", "")))
    return table(("part", "examples", "file", "bytes", "sha256"), rows)


def _measured(answers: Answers[Any, Any], metrics: Mapping[str, float]) -> str:
    count = len(answers.examples)
    drawn = bootstrap(
        answers.metrics, count, num_resamples=_NUM_RESAMPLES, max_seconds=_MAX_SECONDS
    )
    intervals = dict(drawn.by_name)
    if "accuracy" in metrics and answers.task.unit != "token":
        intervals["accuracy"] = proportion_interval(metrics["accuracy"], count)
    second = answers.task.names[1] if len(answers.task.names) == 2 else ""
    rows = [
        (name, f"{metrics[name]:.4f}", _ends(intervals.get(name)), text.format(positive=second))
        for name, text in answers.task.meanings.items()
        if name in metrics
    ]
    remark = (
        f"Measured on the {count:,} dev examples, which also chose the best weights, so these "
        "figures flatter the model. The intervals are Wilson's for the accuracy of whole examples "
        "and a bootstrap over examples otherwise."
    )
    return f"{table(('metric', 'value', '95 % interval', 'meaning'), rows)}\n\n{remark}"


def _use(name: str, task: AnyTask, inputs: ExampleKind | None, in_transformers: bool) -> str:
    if task.architecture == "BertModel":
        return "\n".join(
            [
                "```sh", f"tidybert embed {name} FILE --out vectors.npy", "```",
                "", "```python", "from sentence_transformers import SentenceTransformer", "",
                f'vectors = SentenceTransformer("{name}").encode(["a text"])', "```",
            ]
        )  # fmt: skip
    lines = ["```sh", f"tidybert predict {name} FILE", "```"]
    if inputs is not None:
        lines += [
            "", "```python", "from tidybert import Predictor", "",
            f'answers = Predictor("{name}").predict({inputs.python})', "```",
        ]  # fmt: skip
    if _pipeline_tag(task) and in_transformers:
        auto = task.architecture.replace("Bert", "AutoModel")
        lines += [
            "", "```python", f"from transformers import AutoTokenizer, {auto}", "",
            f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
            f'model = {auto}.from_pretrained("{name}")', "```",
        ]  # fmt: skip
    return "\n".join(lines)


def _limits(task: AnyTask, longest: int, is_measured: bool) -> str:
    cut = in_shell(task.truncation)
    limits = [f"In training, a sequence had at most {longest} tokens. Longer examples {cut}."]
    if task.names:
        limits.append("It knows no label but those above: any input gets one or some of them.")
    temperature = task.settings().get("temperature", 1.0)
    if temperature != 1.0:
        limits.append(
            f"Its probabilities need the temperature {temperature:.4g} in `tidybert.json`, which "
            "transformers does not apply."
        )
    if not is_measured:
        limits.append("Nobody measured it: the training had no dev examples.")
    limits.append("tidybert does not know the languages of the data or the licence of the weights.")
    return "\n".join(f"- {each}" for each in limits)


def _settings(arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    unused = () if arguments.get("teacher") else named(FinetuningOptions, needs="teacher")
    left_out = (RECORD, "task", "model", "train", "dev", *unused)
    return [
        (name, value)
        for name, value in arguments.items()
        if name not in left_out and value not in (None, False)
    ]


def _machine(record: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    return (
        f"{record['num_steps']:,} steps at most, {record['seconds']:,.0f} s of training on "
        f"{record.get('device_name', record['processor'])} ({record['device']}, "
        f"{record['threads']} threads), with {versions}. `arguments.json` repeats the training: "
        "`tidybert finetune --config arguments.json --out NEW`."
    )


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(each) for name, each in metrics.items() if isinstance(each, int | float)}


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.low:.4f} to {interval.high:.4f}"
