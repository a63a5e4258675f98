"""Findings about labelled texts by frozen features: labels that may be wrong, classes that are
mixed up, near-duplicates, and which texts to label next.

The contents are plain values for JSON; docs/check.md names the keys.  N training texts, M dev
texts, P unlabelled ones, H width, C classes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.checking.near_duplicates import directions
from tidybert.checking.out_of_fold import FOLDS, fitted, fold_numbers, out_of_fold, probabilities
from tidybert.checking.suggestions import margins, suggested
from tidybert.data.checks import TrainingData
from tidybert.data.features import Features, first_features
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.metrics.label_errors import suspected_label_errors
from tidybert.modeling.kernels.nearest_vectors import top_k
from tidybert.tasks.text_task import TextTask

ALIKE: Final = 0.9
"""Cosine from which two texts with different labels are shown."""
LEAKED: Final = 0.95
"""Cosine from which a dev text counts as one that was trained on."""
RELIABLE: Final = 0.9
"""Share of labels that the probe must agree with for most suspicions to be wrong labels."""
SHOWN_PAIRS: Final = 15

Floats = npt.NDArray[np.float32]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Vectors:
    """The frozen encoder's mean vectors of the parts, (N, H), (M, H) and (P, H).

    Those of a pair are both texts' one after the other, and H is twice the width.
    """

    train: Floats
    dev: Floats
    pool: Floats
    of_pairs: bool = False

    def compared(self) -> "Vectors":
        """The vectors that a probe reads: for pairs |u - v| and u v, side by side.

        The pair read as one text, as in training, showed a probe next to nothing.
        """
        return self._changed(_compared) if self.of_pairs else self

    def directions(self) -> "Vectors":
        """All from the mean of the training vectors."""
        centre = self.train.mean(axis=0)
        return self._changed(lambda each: directions(each, centre))

    def _changed(self, change: Callable[[Floats], Floats]) -> "Vectors":
        return Vectors(change(self.train), change(self.dev), change(self.pool))


def single_texts(examples: Sequence[TextExample]) -> list[TextExample]:
    """All first texts, and then all second ones where there are some."""
    first = [replace(one, text_pair=None) for one in examples]
    second = [replace(one, text=one.text_pair or "", text_pair=None) for one in examples]
    return first + second if any(one.text_pair is not None for one in examples) else first


def text_vectors(
    embedder: Embedder, features: Sequence[Features], num_examples: int, advance: Advance
) -> Floats:
    """(N, H): a vector an example, the mean over its windows; ``features`` of ``single_texts``."""
    sides = 1 + int(any(one.example >= num_examples for one in features))
    sums = np.zeros((sides * num_examples, embedder.dimension), dtype=np.float32)
    if features:
        number = [one.example for one in features]
        np.add.at(sums, number, embedder.vectors(features, advance))
        sums /= np.bincount(number, minlength=len(sums))[:, None].astype(np.float32)
    return np.concatenate(np.split(sums, sides), axis=1)


def label_probabilities(
    task: TextTask, data: TrainingData[TextExample], vectors: Floats, advance: Advance
) -> Floats:
    """(N, C), of each training text from the probe of the folds without it.

    vectors: (N, H), ``Vectors.compared``.
    """
    features = first_features(data.train_features)
    labels = np.array([one.label for one in features], dtype=np.int64)
    folds = fold_numbers([task.identity(one) for one in data.train], labels)
    return out_of_fold(task, vectors, features, folds, advance)


def label_findings(task: TextTask, data: TrainingData[TextExample], p: Floats) -> dict[str, Any]:
    """Labels that may be wrong, the likeliest first, and pairs of classes that are mixed up.

    Classes of fewer than FOLDS texts are not judged.

    p: ``label_probabilities``.
    """
    features = first_features(data.train_features)
    labels = np.array([one.label for one in features], dtype=np.int64)
    best = p.argmax(axis=1)
    support = np.bincount(labels, minlength=len(task.names))
    agreement = float((best == labels).mean())
    return {
        "agreement": agreement,
        "reliable": agreement >= RELIABLE,
        "not_judged": [task.names[at] for at in np.flatnonzero((support > 0) & (support < FOLDS))],
        "suspected": [
            {
                **_example(data.train[one.example]),
                "label": task.names[one.given],
                "label_probability": float(p[one.example, one.given]),
                "suggested": task.names[one.suggested],
                "suggested_probability": float(p[one.example, one.suggested]),
            }
            for one in suspected_label_errors(p, labels, least_support=FOLDS)
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


def suggestions(
    task: TextTask,
    data: TrainingData[TextExample],
    vectors: Vectors,
    pool: Sequence[TextExample],
    count: int,
) -> list[dict[str, Any]]:
    """At most ``count`` texts of the pool to label next, each once, and none that has a label."""
    fresh, _ = _fresh(task, data, pool)
    if not fresh:
        return []
    features = first_features(data.train_features)
    compared = vectors.compared()
    probe = fitted(task, compared.train, features, np.arange(len(features)))
    p = probabilities(probe, compared.pool[fresh])
    unsure = margins(p)
    return [
        {
            **_example(pool[fresh[at]]),
            "likeliest": [task.names[each] for each in np.argsort(-p[at], kind="stable")[:2]],
            "margin": float(unsure[at]),
        }
        for at in suggested(p, vectors.directions().pool[fresh], count)
    ]


def passed_over(
    task: TextTask, data: TrainingData[TextExample], pool: Sequence[TextExample]
) -> dict[str, int]:
    """How many texts of the pool ``suggestions`` leaves out: labelled already, or repeated."""
    fresh, num_labelled = _fresh(task, data, pool)
    return {"labelled": num_labelled, "repeated": len(pool) - len(fresh) - num_labelled}


def _fresh(
    task: TextTask, data: TrainingData[TextExample], pool: Sequence[TextExample]
) -> tuple[list[int], int]:
    """The places of the texts without a label, each text once, and the number of the others."""
    known = {task.identity(one) for one in data.train}
    new: dict[Any, int] = {}
    num_labelled = 0
    for at, one in enumerate(pool):
        if task.identity(one) in known:
            num_labelled += 1
        else:
            new.setdefault(task.identity(one), at)
    return list(new.values()), num_labelled


def _compared(vectors: Floats) -> Floats:
    u, v = np.split(vectors, 2, axis=1)
    return np.concatenate([np.abs(u - v), u * v], axis=1)


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
    both = [{**_example(each), "label": _label(each)} for each in (one, other)]
    return {"texts": both, "cosine": round(cosine, 4)}


def _label(one: TextExample) -> str:
    return ", ".join(one.labels or ()) if one.label is None else one.label
