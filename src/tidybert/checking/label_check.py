"""Findings about labelled texts by frozen features: labels that may be wrong, classes that are
mixed up, and near-duplicates.

The contents are plain values for JSON; docs/check.md names the keys.  N training texts, M dev
texts, H width, C classes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.example_kinds import PAIR
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features, first_features
from tidybert.errors import in_shell
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import OpenedModel, fitting_length
from tidybert.inference.near_duplicates import directions
from tidybert.metrics.label_errors import suspected_label_errors
from tidybert.search.nearest_vectors import top_k
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.version import installed_version
from tidybert.tasks.answers import softmax
from tidybert.tasks.classification import likeliest
from tidybert.tasks.task import AnyTask
from tidybert.tasks.text_task import TextTask
from tidybert.training.linear_probe import LinearProbe, fit_probe

# Out-of-fold probabilities: what a linear probe says of each text that it was not fitted to.
#
# N examples, H width, C classes.

FOLDS: Final = 5
MOST_FITTED: Final = 32_768
"""Examples that one probe is fitted to: 48 MiB of vectors at a width of 384."""

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


def fold_numbers(identities: Sequence[Hashable], labels: Indices) -> Indices:
    """(N,) the fold of each example: equal identities share one, classes are spread evenly."""
    groups: dict[Hashable, list[int]] = {}
    for number, identity in enumerate(identities):
        groups.setdefault(identity, []).append(number)
    members = list(groups.values())
    # Two groups never share all folds: of the classes that begin one, no number is left out.
    classes = np.unique(labels[[each[0] for each in members]], return_inverse=True)[1].tolist()
    dealt: Counter[int] = Counter()
    folds = np.empty(len(labels), dtype=np.int64)
    for at in np.random.default_rng(0).permutation(len(members)):
        label = classes[at]
        folds[members[at]] = (label + dealt[label]) % FOLDS
        dealt[label] += 1
    return folds


def out_of_fold(
    task: AnyTask,
    vectors: Floats,
    features: Sequence[Features],
    folds: Indices,
    reporter: Reporter = SILENT,
) -> Floats:
    """(N, C) probabilities of classes, each row from the probe of the other folds (N,)."""
    found = np.empty((len(features), len(task.names)), dtype=np.float32)
    num_done = 0
    for fold in range(FOLDS):
        held_out = np.flatnonzero(folds == fold)
        if not len(held_out):
            continue
        probe = fitted(task, vectors, features, np.flatnonzero(folds != fold))
        found[held_out] = softmax(probe.outputs(vectors[held_out]))
        num_done += len(held_out)
        reporter.advance(num_done)
    return found


def fitted(
    task: AnyTask, vectors: Floats, features: Sequence[Features], chosen: Indices
) -> LinearProbe:
    """The probe of the chosen examples, or of a sample where they are more than MOST_FITTED."""
    if len(chosen) > MOST_FITTED:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:MOST_FITTED])
    return fit_probe(
        [vectors[number : number + 1] for number in chosen],
        [features[number] for number in chosen],
        len(task.names),
        task.summed_loss,
    )


ALIKE: Final = 0.9
"""Cosine from which two texts with different labels are shown."""
LEAKED: Final = 0.95
"""Cosine from which a dev text counts as one that was trained on."""
RELIABLE: Final = 0.9
"""Share of labels that the probe must agree with for most suspicions to be wrong labels."""
SHOWN_PAIRS: Final = 15


@dataclass(frozen=True)
class Vectors:
    """The encoder's mean vectors of the parts, (N, H) and (M, H); a pair's side by side."""

    train: Floats
    dev: Floats
    of_pairs: bool = False

    def compared(self) -> "Vectors":
        """The vectors that a probe reads: for pairs |u - v| and u v, side by side.

        The pair read as one text, as in training, showed a probe next to nothing.
        """

        def side_by_side(vectors: Floats) -> Floats:
            u, v = np.split(vectors, 2, axis=1)
            return np.concatenate([np.abs(u - v), u * v], axis=1)

        return self._changed(side_by_side) if self.of_pairs else self

    def directions(self) -> "Vectors":
        """All from the mean of the training vectors."""
        centre = self.train.mean(axis=0)
        return self._changed(lambda each: directions(each, centre))

    def _changed(self, change: Callable[[Floats], Floats]) -> "Vectors":
        return Vectors(change(self.train), change(self.dev))


def single_texts(examples: Sequence[TextExample]) -> list[TextExample]:
    """All first texts, and then all second ones where there are some."""
    first = [replace(one, text_pair=None) for one in examples]
    second = [replace(one, text=one.text_pair or "", text_pair=None) for one in examples]
    return first + second if any(one.text_pair is not None for one in examples) else first


def text_vectors(
    embedder: Embedder, features: Sequence[Features], num_examples: int, reporter: Reporter
) -> Floats:
    """(N, H): a vector an example, the mean over its windows; ``features`` of ``single_texts``."""
    sides = 1 + int(any(one.example >= num_examples for one in features))
    sums = np.zeros((sides * num_examples, embedder.dimension), dtype=np.float32)
    if features:
        number = [one.example for one in features]
        np.add.at(sums, number, embedder.vectors(features, reporter))
        sums /= np.bincount(number, minlength=len(sums))[:, None].astype(np.float32)
    return np.concatenate(np.split(sums, sides), axis=1)


def label_probabilities(
    task: TextTask, data: TrainingData[TextExample], vectors: Floats, reporter: Reporter
) -> Floats:
    """(N, C), of each training text from the probe of the folds without it."""
    features = first_features(data.train_features)
    labels = np.array([likeliest(one.label) for one in features], dtype=np.int64)
    folds = fold_numbers([task.identity(one) for one in data.train], labels)
    return out_of_fold(task, vectors, features, folds, reporter)


def label_findings(task: TextTask, data: TrainingData[TextExample], p: Floats) -> dict[str, Any]:
    """Labels that may be wrong, of classes with FOLDS different texts, and classes mixed up.

    p: (N, C).
    """
    features = first_features(data.train_features)
    labels = np.array([likeliest(one.label) for one in features], dtype=np.int64)
    best = p.argmax(axis=1)
    support = np.bincount(labels, minlength=len(task.names))
    # Equal texts share a fold: no copy of a text teaches its label.
    pairs = {*zip(labels.tolist(), map(task.identity, data.train), strict=True)}
    different = np.bincount([label for label, _ in pairs], minlength=len(task.names))
    judged = different >= FOLDS
    agreement = float((best == labels).mean())
    return {
        "agreement": agreement,
        "reliable": agreement >= RELIABLE,
        "not_judged": [task.names[at] for at in np.flatnonzero((different > 0) & ~judged)],
        "suspected": [
            {
                **_example(data.train[one.example]),
                "label": task.names[one.given],
                "label_probability": float(p[one.example, one.given]),
                "suggested": task.names[one.suggested],
                "suggested_probability": float(p[one.example, one.suggested]),
            }
            for one in suspected_label_errors(p, labels, judged=judged)
        ],
        "mixed_up": _mixed_up(task.names, labels, best, support),
    }


def duplicate_findings(
    task: TextTask, data: TrainingData[TextExample], alike: Vectors
) -> dict[str, Any]:
    """Near-duplicates with different labels, each text in one pair, and dev texts like training.

    ``alike`` are directions.  Scores differ by nature, so only labels of classes are compared.
    """
    found: dict[str, Any] = {"contradicting": None, "leaked": None}
    if task.label_names is not None:
        numbers: dict[Any, int] = {}
        keys = [numbers.setdefault(task.answer_key(one), len(numbers)) for one in data.train]
        classes = np.array(keys, dtype=np.int64)
        other, cosine = _nearest(alike.train, alike.train, classes)
        found["contradicting"] = []
        paired: set[int] = set()
        for at in np.argsort(-cosine, kind="stable").tolist():
            # One wrong label among many copies of a text would make a pair with each of them.
            pair = {at, int(other[at])}
            if cosine[at] >= ALIKE and not paired & pair:
                paired |= pair
                first, second = (data.train[each] for each in sorted(pair))
                found["contradicting"].append(_pair(first, second, float(cosine[at])))
    if data.held_out:
        other, cosine = _nearest(alike.dev, alike.train)
        found["leaked"] = [
            _pair(data.held_out[at], data.train[other[at]], float(cosine[at]))
            for at in np.argsort(-cosine, kind="stable").tolist()
            if cosine[at] >= LEAKED
        ]
    return found


def _nearest(
    rows: Floats, others: Floats, classes: npt.NDArray[np.int64] | None = None
) -> tuple[npt.NDArray[np.int64], Floats]:
    """For each row the nearest of the others, of another class where they have some; the cosine."""
    positions, cosines = top_k(rows, others, 1, groups=classes, vector_groups=classes)
    return positions[:, 0], cosines[:, 0]


def _mixed_up(
    names: Sequence[str],
    labels: npt.NDArray[np.int64],
    best: npt.NDArray[np.int64],
    support: npt.NDArray[np.int64],
) -> list[dict[str, Any]]:
    """Pairs of classes by how many texts of one the probe gives the other."""
    counts = Counter(
        (min(label, other), max(label, other))
        for label, other in zip(labels.tolist(), best.tolist(), strict=True)
        if label != other
    )
    order = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [
        {
            "classes": [names[one], names[other]],
            "count": count,
            "share": count / int(support[one] + support[other]),
        }
        for (one, other), count in order[:SHOWN_PAIRS]
    ]


def _example(one: TextExample) -> dict[str, Any]:
    return {"row": one.row, "text": one.text, "text_pair": one.text_pair}


def _pair(one: TextExample, other: TextExample, cosine: float) -> dict[str, Any]:
    """Two texts that read alike; each label in words."""
    both = [
        {
            **_example(each),
            "label": ", ".join(each.labels or ()) if each.label is None else each.label,
        }
        for each in (one, other)
    ]
    return {"texts": both, "cosine": round(cosine, 4)}


# A check of labelled examples, from the checks before training to the findings in their labels.

CHECK_VERSION: Final = 1
_MESSAGES: Final = ("facts", "errors", "warnings")
_FOUND: Final = ("labels", "contradicting", "leaked")

Progress = Callable[[str, int], AbstractContextManager[Reporter]]
"""Takes a title and a total, and gives a function that takes how many texts are done."""


@dataclass(frozen=True)
class Findings:
    """The report of the checks, and what was found beyond it; None: not looked for."""

    report: DataReport
    labels: dict[str, Any] | None = None
    contradicting: list[dict[str, Any]] | None = None
    leaked: list[dict[str, Any]] | None = None
    not_looked_for: str = ""

    def contents(self, *, data: str, dev: str | None, model: str) -> dict[str, Any]:
        """Plain values for check.json, with the names of files and MODEL, in the shell's words."""
        return {
            "check_version": CHECK_VERSION,
            "tidybert_version": installed_version(),
            "task": self.report.task,
            "data": data,
            "dev": dev,
            "model": model,
            "report": {
                **self.report.to_dict(),
                **{name: [*map(in_shell, getattr(self.report, name))] for name in _MESSAGES},
            },
            **{name: getattr(self, name) for name in _FOUND},
        }


def check_examples(
    task: AnyTask,
    model: str | Path,
    train: Sequence[Any],
    dev: Sequence[Any] | None = None,
    *,
    max_seq_length: int | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    progress: Progress = lambda _title, _total: nullcontext(SILENT),
) -> Findings:
    """Make the checks of fine-tuning, and look at the labels with the frozen encoder of ``model``.

    Nothing is trained but linear probes, and equal arguments give equal findings.  Errors of the
    checks end the work: the report has them.
    """
    opened = OpenedModel(model, device=device, allow_pickle=allow_pickle)
    if max_seq_length is None:
        max_seq_length = task.default_max_seq_length
    fitting_length(opened.config, max_seq_length)

    def features_of(examples: Sequence[Any] | None) -> list[Features]:
        found = task.features(examples, opened.tokenizer, max_seq_length) if examples else []
        return list(found)

    parts = features_of(train), features_of(dev)
    data = TrainingData(train, dev, *parts, max_seq_length, opened.tokenizer)
    report = task.check(data)
    if report.errors:
        return Findings(report)
    if not isinstance(task, TextTask):
        return Findings(report, not_looked_for=f"wrong labels: not for {task.name} yet")
    task.add_labels(data.train_features, train)
    # The findings were measured on means as they are.
    embedder = Embedder.of(opened, normalize=False)

    def vectors_of(name: str, examples: Sequence[Any]) -> Any:
        features = features_of(single_texts(examples))
        with progress(f"encoding {name}", len(features)) as reporter:
            return text_vectors(embedder, features, len(examples), reporter)

    inputs = task.inputs_of(train)
    task.check_inputs(data.held_out, inputs)
    trained = vectors_of("the texts", train)
    vectors = Vectors(
        trained,
        vectors_of("dev", dev) if dev else trained[:0],
        of_pairs=inputs == PAIR,
    )
    duplicates = duplicate_findings(task, data, vectors.directions())
    if task.name != "classify":
        return Findings(
            report, **duplicates, not_looked_for=f"wrong labels: not for {task.name} yet"
        )
    if len(set(map(task.identity, train))) == 1:
        why = f"wrong labels: all texts are equal, so no class is judged: {', '.join(task.names)}"
        return Findings(report, **duplicates, not_looked_for=why)
    with progress("fitting probes", len(train)) as reporter:
        p = label_probabilities(task, data, vectors.compared().train, reporter)
    return Findings(report, label_findings(task, data, p), **duplicates)
