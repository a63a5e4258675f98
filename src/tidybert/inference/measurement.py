"""Labelled examples and a finished model to its metrics, for the shell and for Python alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidybert.data.splits import read_training_texts, text_hashes
from tidybert.errors import DataError, UsageError, param
from tidybert.files.reading import ReadOptions
from tidybert.files.rows import count_of
from tidybert.files.text_files import read_examples
from tidybert.inference.loading import check_texts
from tidybert.inference.predictor import Predictor
from tidybert.storage.model_files import ARGUMENTS_FILE
from tidybert.system.reporter import Reporter
from tidybert.tasks.answers import Answers
from tidybert.tasks.labelled_examples import read_all
from tidybert.tasks.task import AnyTask
from tidybert.tasks.vectors.vector_answers import PairAnswers
from tidybert.training.runs.provenance import file_identity, recorded_files

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Measurement:
    """The answers to labelled examples, and all metrics and counts of them.

    ``file`` is where they came from, or the name of the parameter that held them.  is_dev: whether
    it chose the model's weights; None where that is not known.
    """

    answers: Answers[Any, Any]
    metrics: dict[str, Any]
    file: str
    is_dev: bool | None = None


def measure(
    predictor: Predictor[Any],
    data: Any,
    read: ReadOptions | None = None,
    *,
    skip_bad_rows: bool = False,
    tell: Tell = lambda _line: None,
    warn: Tell = lambda _line: None,
    advance: Callable[[], Any] | None = None,
    warns: bool = False,
    texts: Any = None,
) -> Measurement:
    """Measure a model on labelled examples."""
    file = str(data) if isinstance(data, str | Path) else "data"
    task = predictor.task
    examples = read_all(
        task,
        data,
        read,
        skip_bad_rows=skip_bad_rows,
        like=predictor.reading,
        reporter=Reporter(note=tell, spell=str),
        warns=warns,
    )
    try:
        if advance is None:
            answers = predictor.examine(examples)
        else:
            with advance() as done:
                answers = predictor.examine(examples, done)
    except DataError as error:
        raise DataError(f"{file}: {error.message}") from error
    if texts is not None:
        _search_among(predictor, answers, texts, skip_bad_rows=skip_bad_rows, tell=tell)
    metrics = {**answers.metrics(), **answers.counts(), "computed_in": predictor.precision}
    is_dev = None
    if predictor.directory is not None:
        is_dev = _is_dev(predictor.directory, data)
        if is_dev:
            warn(f"{file} chose the best weights in training, so these metrics flatter it")
        metrics |= _trained_on(predictor.directory, file, task, examples, warn)
    if drawn := drawn_metrics(task, answers, examples):
        metrics |= drawn
        count, chosen = len(examples), drawn["num_chosen"]
        value = drawn["drawn_at_random"][task.metric]
        warn(
            f"{chosen:,} of {count_of(count, 'example')} in {file} were chosen to teach a model, "
            f"so these metrics are not those of new texts: {task.metric} of the {count - chosen:,} "
            f"drawn at random is {value:.4f}"
        )
    if (remark := predictor.unknown.remark()) is not None:
        warn(remark)
    total = f"of {metrics['num_examples']:,} examples"
    if metrics["num_truncated"]:
        tell(f"{metrics['num_truncated']:,} {total} {task.truncation}")
    if metrics["num_windowed"]:
        tell(
            f"{metrics['num_windowed']:,} {total} were read in windows, "
            f"{metrics['num_windows']:,} in all"
        )
    return Measurement(answers, metrics, file, is_dev)


def _search_among(
    predictor: Predictor[Any], answers: Any, texts: Any, *, skip_bad_rows: bool, tell: Tell
) -> None:
    """Have answers that search find their right texts among more."""
    if not isinstance(answers, PairAnswers):
        raise UsageError(
            f"{param('texts')} is for pairs of texts that belong together, which embed measures: "
            "leave it out"
        )
    found = texts
    if isinstance(texts, str | Path):
        rows = read_examples(str(texts), None, need_label=False, skip_bad_rows=skip_bad_rows)
        found = [one.text for one in rows]
    check_texts(found)
    vectors, num_cut = predictor.vectors(found)
    num_new = answers.add_texts(found, vectors)
    cut = f", {num_cut:,} of them cut to {predictor.max_seq_length} tokens" if num_cut else ""
    tell(f"{count_of(num_new, 'text')} more to search among{cut}")


def _is_dev(directory: Path, data: Any) -> bool | None:
    """Whether a file is the one that a RUN records as dev; None where that is not known.

    A dev that was held out of train is known to be no part of another file.
    """
    files = recorded_files(directory / ARGUMENTS_FILE)
    dev = files.get("dev", files.get("train", {}))
    now = file_identity(data) if isinstance(data, str | Path) else {}
    if "sha256" not in dev.keys() & now.keys():
        return None
    return False if dev["sha256"] != now["sha256"] else True if "dev" in files else None


def _trained_on(
    directory: Path, file: str, task: Any, examples: list[Any], warn: Tell
) -> dict[str, int]:
    """How many of the examples trained the model; nothing where the RUN does not know."""
    texts = read_training_texts(directory)
    if texts is None:
        return {}
    count = texts.num_among(text_hashes(map(task.identity, examples)))
    if count:
        least = "" if texts.is_whole else "at least "
        warn(
            f"the model was trained on {least}{count:,} of "
            f"{count_of(len(examples), 'example')} in {file}, so these metrics flatter it"
        )
    return {"num_trained_on": count}


def drawn_metrics(task: AnyTask, answers: Any, examples: Sequence[Any]) -> dict[str, Any]:
    """How many examples were chosen to teach a model, and the metrics of the others; {} for none.

    Chosen texts are harder than new ones, or of other classes.
    """
    drawn = task.drawn_of(examples)
    if not drawn:
        return {}
    found = answers.metrics(np.array(drawn))
    return {"num_chosen": len(examples) - len(drawn), "drawn_at_random": found}
