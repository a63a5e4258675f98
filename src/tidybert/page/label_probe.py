"""The probe that learns while a person labels, and what it believes of every text.

N texts, L of them labelled, H width, C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.data.features import NO_EXAMPLE, Features, example_features
from tidybert.data.splits import folds_of
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.inference.zero_shot import class_texts, nameless
from tidybert.system.reporter import SILENT, Reporter
from tidybert.tasks.answers import Answers, Judgement, softmax
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.text_task import TextTask
from tidybert.training.linear_probe import fit_probe, outputs_without

Floats = npt.NDArray[np.float32]
Labelled = Sequence[tuple[int, tuple[str, ...]]]
"""Numbers of texts, and their labels."""

FEWEST_MEASURED: Final = 5
_FOLDS: Final = 5
_LENGTH: Final = 128
"""Most tokens that the probe reads of a text, as fine-tuning does by default."""


@dataclass(frozen=True)
class Learned:
    """A probe that was fitted to ``count`` labels.

    outputs: (N, C).  measured: of the random texts, by probes that did not see them.
    """

    task: TextTask
    outputs: Floats
    count: int
    penalty: float
    measured: tuple[Judgement, ...] = ()

    def beliefs(self, number: int) -> Mapping[str, float]:
        """The probability of each class for a text."""
        found: Any = _answers(self.task, self.outputs[number : number + 1], [(0, ())]).prediction(0)
        scores: Mapping[str, float] = found.scores
        return scores

    @property
    def doubts(self) -> Floats:
        """(N, C) probabilities of classes; of sets (N, 2), of the label that is the least sure."""
        if not isinstance(self.task, MultiLabelClassification):
            return np.asarray(softmax(self.outputs), np.float32)
        p = self.task.probabilities(self.outputs)
        open_one = np.take_along_axis(p, np.abs(p - 0.5).argmin(1)[:, None], 1)
        return np.concatenate([open_one, 1 - open_one], axis=1).astype(np.float32)


class LabelProbe:
    """The vectors of texts, which are computed once, and the probes that learn from labels.

    One thread at a time may use it.  Raises what ``Embedder`` raises.
    """

    def __init__(
        self,
        examples: Sequence[TextExample],
        model: str,
        descriptions: Mapping[str, str],
        *,
        multi_label: bool,
        opening: Mapping[str, Any],
    ) -> None:
        self._examples, self._descriptions = examples, descriptions
        self._kind = MultiLabelClassification if multi_label else Classification
        self._embedder = Embedder(model, normalize=False, **opening)
        self._of_name: dict[str, Floats] = {}
        self.vectors = np.empty((0, 0), dtype=np.float32)

    def encode(self, advance: Callable[[int], None]) -> None:
        """Compute the vectors (N, H); of pairs |u - v| and u v side by side, as a check does."""
        texts = [one.text for one in self._examples]
        self.vectors = self._encoded(texts, Reporter(advance=advance))
        if self._examples[0].text_pair is not None:
            u, v = self.vectors, self._encoded([one.text_pair or "" for one in self._examples])
            self.vectors = np.concatenate([np.abs(u - v), u * v], axis=1)

    def learn(self, labelled: Labelled, random: set[int], classes: Sequence[str]) -> Learned | None:
        """A probe of the labels so far; None where they are too few to tell classes apart.

        It is measured on the texts that were drawn at ``random``.
        """
        self._read_names(classes)
        used = {label for _, labels in labelled for label in labels}
        names = [name for name in classes if name in used or len(self._of_name[name])]
        if len(names) < (1 if self._kind is MultiLabelClassification else 2):
            return None
        task = self._kind(names)
        states, features = self._taught(task, labelled)
        probe = fit_probe(states, features, len(names), task.summed_loss)
        found = Learned(task, probe.outputs(self.vectors), len(labelled), probe.penalty)
        drawn = [one for one in labelled if one[0] in random]
        others = [one for one in labelled if one[0] not in random]
        return replace(found, measured=self.judged(found, drawn, others))

    def judged(
        self, by: Learned, measured: Labelled, others: Labelled = ()
    ) -> tuple[Judgement, ...]:
        """How texts are answered by probes, in folds, that did not see them; () for too few.

        All probes learn from the ``others`` and from the names.
        """
        texts = [self._examples[at] for at, _ in measured]
        if len(measured) < FEWEST_MEASURED:
            return ()
        identities = [by.task.identity(one) for one in texts]
        folds = folds_of(identities, [labels for _, labels in measured], _FOLDS)
        if len(np.unique(folds)) < 2:
            return ()
        states, features = self._taught(by.task, [*measured, *others])
        more = np.full(len(states) - len(measured), NO_EXAMPLE)
        rows = outputs_without(
            np.append(folds, more), states, features, len(by.task.names), by.task.summed_loss,
            by.penalty,
        )  # fmt: skip
        answers = _answers(by.task, np.concatenate(rows[: len(measured)]), measured, texts)
        return tuple(answers.judgement(number) for number in range(len(measured)))

    def _taught(
        self, task: TextTask, labelled: Labelled
    ) -> tuple[list[Floats], Sequence[Features]]:
        """The states and the features of texts, and of the names of classes, for a probe."""
        states = [self.vectors[at : at + 1] for at, _ in labelled]
        labels = [each for _, each in labelled]
        for name in task.names:
            found = self._of_name.get(name, ())
            states += [each[None] for each in found]
            labels += [(name,)] * len(found)
        features = _features(task, labels)
        for one in features[len(labelled) :]:
            one.example = NO_EXAMPLE
        return states, features

    def _read_names(self, classes: Sequence[str]) -> None:
        """Encode the texts that say what each class is, where something does."""
        for name in classes:
            if name in self._of_name:
                continue
            described = {name: self._descriptions[name]} if name in self._descriptions else {}
            texts = [] if nameless([name]) else class_texts([name], described)[name]
            if not texts or self._examples[0].text_pair is not None:
                self._of_name[name] = np.empty((0, 0), dtype=np.float32)
            else:
                self._of_name[name] = self._encoded(texts)

    def _encoded(self, texts: Sequence[str], reporter: Reporter = SILENT) -> Floats:
        embedder, given = self._embedder, [TextExample(text, None, None, 0) for text in texts]
        length = min(_LENGTH, embedder.max_seq_length)
        features = example_features(given, embedder.tokenizer, length, prompt=embedder.prompt)
        return embedder.vectors(features, reporter)


def _features(task: TextTask, labels: Sequence[Sequence[str]]) -> list[Features]:
    """Features of texts that nobody reads, with their labels."""
    found = []
    for number, each in enumerate(labels):
        ids = tuple(sorted(task.label_ids[name] for name in each))
        label: Any = ids if isinstance(task, MultiLabelClassification) else sum(ids)
        empty = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.uint8)
        found.append(Features(*empty, 1, example=number, label=label))
    return found


def _answers(
    task: TextTask, outputs: Floats, labelled: Labelled, texts: Sequence[TextExample] = ()
) -> Answers[Any, Any]:
    features = _features(task, [labels for _, labels in labelled])
    return task.answers([each[None] for each in outputs], features, texts)
