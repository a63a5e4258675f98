"""Labelling on the page: one text after another, what a probe believes of it, and what to do next.

A person's keys never wait for the model: the texts are encoded once, the probe is fitted again
after a label, and the next texts are chosen, all in a thread of their own.  N texts, H width, C
classes.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from tidybert.data.labels_file import SEPARATOR, Answer, CorrectionsFile, LabelsFile
from tidybert.errors import DataError, TidyBertError, in_shell
from tidybert.files.annotations import Span
from tidybert.files.label_rows import ASKED, LABELLED, NONE, SKIPPED, UNDONE, text_key
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample, canonical_label
from tidybert.finetuning.active_learning import Drawn, NextText, Pool
from tidybert.metrics.bootstrap import proportion_interval
from tidybert.page.label_probe import Floats, Labelled, LabelProbe, Learned
from tidybert.storage.limits import LABELS
from tidybert.system.reporter import SILENT, Reporter
from tidybert.tasks.tags.tag_files import split_text
from tidybert.tasks.text_task import TextTask

KEYS: Final = "123456789abcdefghijklmopqrtuvwxyz"
"""Of the first classes, in their order; 0, n and s have other meanings."""
_AT_EACH_LABEL: Final = 0.3
"""Seconds: a probe that takes longer is fitted after every tenth label alone."""
_IDLE: Final = 2.0
"""Seconds after which the last labels are learned from, however few they are."""
_QUEUE: Final = 10
_NEAR: Final = 8
_NEAR_CHARACTERS: Final = 300
_MOST_ERRORS: Final = 50

Mark = tuple[int, int, str]
"""An entity on the page: its first and its last word, from 0, and its type."""


@dataclass(frozen=True)
class Suspect:
    """A label that a check suspects: what it is, what the probe says instead, and why."""

    label: str
    suggested: str
    why: str


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """What is labelled, by which model, into which classes.

    model: None believes nothing and asks in the order of the texts.
    of_entities: words of the texts are marked, whose types are the classes.
    suspects: one a text, where the labels of a check are looked at; each text is then asked once,
        in its order, and its label stays where it is not corrected.
    """

    file: str
    out: str
    model: str | None
    classes: Sequence[str] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    multi_label: bool = False
    of_entities: bool = False
    at_random: bool = False
    seed: int = 0
    suspects: Sequence[Suspect] = ()
    opening: Mapping[str, Any] = field(default_factory=dict)


class Labelling:
    """The texts, the answers so far, and what the page shows; any thread may call its methods.

    Args:
        examples: the texts; of equal ones the first is asked.
        progress: shows how many of so many texts are encoded, in the terminal.

    Raises DataError for what ``store`` cannot read.  ``close`` ends its thread.
    """

    def __init__(
        self,
        examples: Sequence[TextExample],
        store: LabelsFile | CorrectionsFile,
        settings: LabelSettings,
        progress: Callable[[int], AbstractContextManager[Reporter]] = lambda _: nullcontext(SILENT),
    ) -> None:
        self.settings, self._store, self._progress = settings, store, progress
        self._lock = threading.RLock()
        self._number_of: dict[tuple[str, ...], int] = {}
        self.examples: list[TextExample] = []
        for one in examples:
            key = self._key(str(one.row), TextTask.shown(one))
            if key not in self._number_of:
                self._number_of[key] = len(self.examples)
                self.examples.append(one)
        self.num_equal = len(examples) - len(self.examples)
        #: The first so many are asked; the others have labels in the file alone.
        self.num_asked = len(self.examples)
        answers = store.read()
        for found in answers:
            key = self._key(found.row, found.texts)
            if found.status == LABELLED and key not in self._number_of:
                self._number_of[key] = len(self.examples)
                row = int(found.row) if found.row.isdecimal() else 0
                self.examples.append(
                    TextExample(found.texts[0], (*found.texts, None)[1], None, row)
                )
        self.classes: list[str] = []
        self._answers: dict[int, Answer] = {}
        #: Texts that a spreadsheet has to answer, and how they were drawn.
        self._waiting: dict[int, Drawn] = {}
        #: What each action changed: the answers before it, by number.
        self._history: list[dict[int, Answer | None]] = []
        self._probe: LabelProbe | None = None
        self._near = np.empty((0, 0), dtype=np.float32)
        self._pool = self._pool_of(np.zeros((self.num_asked, 1), dtype=np.float32))
        self._learned: Learned | None = None
        self._queue: list[NextText] = []
        self._current: NextText | None = None
        self._encoded: tuple[int, int] | None = (0, len(self.examples))
        self._said = ""
        self._wanted, self._ended, self._seconds, self._since = threading.Event(), False, 0.0, 0
        self._thread: threading.Thread | None = None
        self._take(answers)
        self._said = "; ".join(store.notes)
        self._advance()

    def start(self) -> None:
        """Begin to encode and to learn."""
        if self.settings.model is None:
            self._encoded = None
            return
        self._thread = threading.Thread(target=self._work, name="tidybert-probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    # What a person does.

    def answer(
        self,
        number: int,
        labels: Sequence[str],
        status: str = LABELLED,
        also: Sequence[int] = (),
        marks: Sequence[Mark] = (),
    ) -> None:
        """Keep what is said of a text, and of others at once; the next text is then asked.

        Where entities are marked, ``marks`` are all of the text, in place of labels.  Raises
        DataError for a wrong number or label, and what the store raises: nothing is kept then.
        """
        with self._lock:
            self._read_again()
            if status not in (LABELLED, NONE, SKIPPED):
                raise DataError(f"the status {status!r:.40} is none of labelled, none and skipped")
            entities: tuple[Span, ...] = ()
            if self.settings.of_entities and status == LABELLED:
                entities = self._entities(self._example(number).text, marks)
                names = tuple(one.label for one in entities)
            else:
                names = tuple(self._checked_labels(labels)) if status == LABELLED else ()
            numbers = list(dict.fromkeys((number, *also)))
            given = [
                Answer(
                    tuple(TextTask.shown(self._example(at))), names, status, self._drawn(at),
                    str(self._example(at).row), entities,
                )
                for at in numbers
            ]  # fmt: skip
            self._store.add(given)
            self._history.append({at: self._answers.get(at) for at in numbers})
            self._answers |= dict(zip(numbers, given, strict=True))
            self._know(names)
            self._label_changed()
            self._advance()

    def back(self) -> None:
        """Take the last answer back, and ask that text again."""
        with self._lock:
            self._read_again()
            if not self._history:
                raise DataError("there is no answer to take back")
            before = self._history[-1]
            self._store.add([
                was or replace(self._answers[number], labels=(), entities=(), status=UNDONE)
                for number, was in before.items()
            ])  # fmt: skip
            self._history.pop()
            first = next(iter(before))
            self._current = NextText(first, self._drawn(first))
            kept = {at: one for at, one in self._answers.items() if at not in before}
            self._answers = kept | {at: was for at, was in before.items() if was is not None}
            self._label_changed()

    def show(self, number: int) -> None:
        """Ask a text that has a label again."""
        with self._lock:
            if number not in self._answers:
                raise DataError(f"text {number} has no answer yet")
            self._current = NextText(number, self._drawn(number))

    def propose(self, count: int) -> int:
        """Write the next texts into the file, for a person to fill in their labels there.

        Returns how many there were.  ``start`` is not called before.
        """
        self._current = None
        if self.settings.model is not None:
            self._encode()
            self._learn()
        self._choose(count)
        chosen = [one for one in self._queue if one.number not in self._waiting]
        self._store.add([
            Answer(tuple(TextTask.shown(one)), (), ASKED, each.drawn, str(one.row))
            for each in chosen for one in [self.examples[each.number]]
        ])  # fmt: skip
        return len(chosen)

    # What the page shows.

    def view(self) -> dict[str, Any]:
        """All that the page shows, as plain values."""
        with self._lock:
            counts = Counter(label for one in self._answers.values() for label in one.labels)
            statuses = Counter(one.status for one in self._answers.values())
            learned, said = self._learned, self._said
            self._said = ""
            accuracy = None
            if learned is not None and (count := len(learned.measured)):
                right = sum(one.correct == 1 for one in learned.measured)
                interval = proportion_interval(right / count, count)
                accuracy = {"low": interval.low, "high": interval.high, "count": count}
            random = sum(
                one.drawn == "random" for one in self._answers.values() if one.status == LABELLED
            )
            return {
                "file": self.settings.file, "out": self.settings.out, "encoding": self._encoded,
                "several": self.settings.multi_label, "corrects": bool(self.settings.suspects),
                "marks": self.settings.of_entities, "keys": KEYS,
                "classes": [
                    {"name": name, "key": KEYS[at : at + 1], "count": counts[name]}
                    for at, name in enumerate(self.classes)
                ],
                "labelled": statuses[LABELLED], "none": statuses[NONE],
                "skipped": statuses[SKIPPED], "random": random,
                "left": sum(at not in self._answers for at in range(self.num_asked)),
                "equal": self.num_equal,
                "accuracy": accuracy, "learned": learned.count if learned else 0,
                "canGoBack": bool(self._history), "item": self._item(), "said": said,
            }  # fmt: skip

    def errors(self) -> list[dict[str, Any]]:
        """Labelled texts of which probes that did not see them believe otherwise, surest first."""
        with self._lock:
            probe, learned, labelled = self._probe, self._learned, self._labelled()
            drawn = [self._drawn(at) for at, _ in labelled]
        known = set() if learned is None else {*learned.task.names}
        if not all(known >= {*labels} for _, labels in labelled):
            learned = None
        judged = probe.judged(learned, labelled) if probe and learned else ()
        if not judged:
            raise DataError("the model has learned from too few labels: label more texts first")
        found = [(one, at, how) for one, (at, _), how in zip(judged, labelled, drawn, strict=True)]
        wrong = sorted(
            (each for each in found if each[0].correct != 1),
            key=lambda each: -(each[0].confidence or 0),
        )
        return [
            {"number": at, "text": one.text, "label": one.expected, "believed": one.predicted,
             "probability": one.confidence, "drawn": how} for one, at, how in wrong[:_MOST_ERRORS]
        ]  # fmt: skip

    def _item(self) -> dict[str, Any] | None:
        if self._current is None:
            return None
        number, one = self._current.number, self.examples[self._current.number]
        beliefs = None
        if self._learned is not None:
            of_name = self._learned.beliefs(number)
            beliefs = [of_name.get(name) for name in self.classes]
        given = self._answers.get(number)
        suspect = self.settings.suspects[number] if self.settings.suspects else None
        near = [
            {
                "number": at,
                "texts": [each[:_NEAR_CHARACTERS] for each in TextTask.shown(self.examples[at])],
            }
            for at in self._nearest(number)
        ]
        return {
            "number": number, "row": one.row, "texts": TextTask.shown(one), "near": near,
            "drawn": self._current.drawn, "labels": given.labels if given else [],
            "status": given.status if given else "", "beliefs": beliefs,
            "suspect": None if suspect is None else vars(suspect), **self._words(one.text, given),
        }  # fmt: skip

    def _words(self, text: str, given: Answer | None) -> dict[str, Any]:
        """The words of a text, each after what is before it, and the entities that it has."""
        if not self.settings.of_entities:
            return {}
        _, spans = split_text(text)
        ends = [0, *(end for _, end in spans)]
        words = [[text[end:a], text[a:b]] for end, (a, b) in zip(ends, spans, strict=False)]
        marks = []
        for each in given.entities if given else ():
            within = [at for at, (a, b) in enumerate(spans) if a < each.end and b > each.start]
            marks += [[within[0], within[-1], each.label]] if within else []
        return {"words": words, "after": text[ends[-1] :], "entities": marks}

    def _nearest(self, number: int) -> list[int]:
        """Texts that may be labelled with one at once; those to be drawn at random stay."""
        if not len(self._near):
            return []
        cosines = self._near @ self._near[number]
        cosines[: self.num_asked][self._pool.is_kept] = -np.inf
        cosines[self.num_asked :] = -np.inf
        cosines[[number, *self._answers]] = -np.inf
        order = np.argsort(-cosines, kind="stable")[:_NEAR]
        return [at for at in order.tolist() if np.isfinite(cosines[at])]

    # The answers.

    def _key(self, row: str, texts: Sequence[str]) -> tuple[str, ...]:
        """What one question has: its text, or also its row where labels are corrected."""
        return (*text_key(texts), *([row] if self.settings.suspects else []))

    def _take(self, answers: Sequence[Answer]) -> None:
        """Begin with the answers of the store."""
        self.classes = list(self.settings.classes)
        self._answers = {}
        self._waiting = {}
        others = set()
        self._history = []
        for one in answers:
            number = self._number_of.get(self._key(one.row, one.texts))
            self._know(one.labels)
            if number is None:
                others.update([one.key] if one.status == LABELLED else [])
            elif one.status == ASKED:
                self._waiting[number] = "random" if one.drawn == "random" else "chosen"
            elif one.status == UNDONE:
                self._waiting.pop(number, None)
                self._answers.pop(number, None)
                self._history = [each for each in self._history if number not in each]
            else:
                self._history.append({number: self._answers.get(number)})
                self._answers[number] = one
        LABELS.check(len(self.classes), self.settings.out)
        if others:
            self._store.notes.append(
                f"{self.settings.out} has {count_of(len(others), 'text')} that "
                f"{self.settings.file} lacks: training reads these, the page once it starts again"
            )

    def _know(self, names: Sequence[str]) -> None:
        self.classes += [name for name in dict.fromkeys(names) if name not in self.classes]

    def _read_again(self) -> None:
        if not self._store.has_changed():
            return
        before = self.classes
        self._take(self._store.read())
        self._know(before)
        changed = f"another program changed {self.settings.out}, and it was read again"
        self._said = "; ".join([changed, *self._store.notes])
        self._label_changed()

    def _drawn(self, number: int) -> Drawn:
        """How a text came to be asked."""
        if number in self._answers:
            return "random" if self._answers[number].drawn == "random" else "chosen"
        current = self._current
        return current.drawn if current is not None and current.number == number else "chosen"

    def _example(self, number: int) -> TextExample:
        if not 0 <= number < len(self.examples):
            raise DataError(f"there is no text {number}")
        return self.examples[number]

    def _entities(self, text: str, marks: Sequence[Mark]) -> tuple[Span, ...]:
        """The spans of marks; raises DataError where they are not in the text, or share a word."""
        _, spans = split_text(text)
        found: list[Span] = []
        free = 0
        for first, last, label in sorted(marks):
            if not free <= first <= last < len(spans):
                raise DataError(
                    f"words {first} to {last} are in another entity, or not among the text's "
                    f"{len(spans)} words"
                )
            free, (start, end) = last + 1, (spans[first][0], spans[last][1])
            (name,) = self._checked_labels([label])
            found.append(Span(start, end, name, text[start:end]))
        return tuple(found)

    def _checked_labels(self, labels: Sequence[str]) -> list[str]:
        found = []
        known = {name.casefold(): name for name in self.classes}
        for each in labels:
            name = canonical_label(each)
            if name is None or "\n" in name:
                raise DataError("a class needs a name, of one line")
            if self.settings.multi_label and SEPARATOR in name:
                raise DataError(f"the name {name!r:.60} has a comma, which separates labels")
            name = known.get(name.casefold(), name)
            if self.settings.suspects and name not in self.classes:
                raise DataError(
                    f"no example has the label {name!r:.60}; for a new class, change the file of "
                    "examples itself"
                )
            found.append(name)
        if not found or (len(found) > 1 and not self.settings.multi_label):
            raise DataError(f"{len(found)} classes are given: choose one")
        LABELS.check(len({*self.classes, *found}), self.settings.out)
        return list(dict.fromkeys(found))

    # What comes next.

    def _advance(self) -> None:
        """Ask the next text."""
        if self.settings.suspects:
            open_ones = [at for at in range(self.num_asked) if at not in self._answers]
            self._current = NextText(open_ones[0], "chosen") if open_ones else None
            return
        self._queue = [one for one in self._queue if one.number not in self._answers]
        if not self._queue:
            self._choose()
        self._current = self._queue.pop(0) if self._queue else None

    def _pool_of(self, vectors: Floats) -> Pool:
        return Pool(vectors, self.settings.seed, at_random=self.settings.at_random)

    def _choose(self, count: int = _QUEUE) -> None:
        """Fill the queue; the lock is held."""
        labels = np.full(self.num_asked, -1, dtype=np.int64)
        elsewhere = []
        for at, one in self._answers.items():
            if one.labels and at < self.num_asked:
                labels[at] = self.classes.index(one.labels[0])
            elif one.labels:
                elsewhere.append(self.classes.index(one.labels[0]))
        passed = [at for at, one in self._answers.items() if not one.labels and at < self.num_asked]
        drawn = [
            self._drawn(at)
            for at, one in self._answers.items() if one.status != SKIPPED and one.drawn
        ]  # fmt: skip
        waiting = {at: how for at, how in self._waiting.items() if at not in self._answers}
        passed += waiting
        drawn += waiting.values()
        if self._current is not None and self._current.number not in self._answers:
            # The text that is on the page stays there, and is asked already.
            passed.append(self._current.number)
            drawn.append(self._current.drawn)
        doubts = None if self._learned is None else self._learned.doubts[: self.num_asked]
        found = self._pool.next(labels, drawn, doubts, count, passed, elsewhere)
        self._queue = [*(NextText(at, how) for at, how in waiting.items()), *found]

    # The thread that encodes, learns and chooses.

    def _label_changed(self) -> None:
        self._since += 1
        if self._seconds < _AT_EACH_LABEL or self._since >= _QUEUE:
            self._wanted.set()

    def _work(self) -> None:
        try:
            self._encode()
            self._wanted.set()
            while not self._ended:
                if not self._wanted.wait(_IDLE) and not self._since:
                    continue
                self._wanted.clear()
                self._since = 0
                begun = time.perf_counter()
                self._learn()
                self._seconds = time.perf_counter() - begun
        except TidyBertError as error:
            self._said = f"the model does not help: {in_shell(error.message)}; texts come at random"
            self._encoded = None

    def _encode(self) -> None:
        given, total = self.settings, len(self.examples)
        probe = LabelProbe(
            self.examples, str(given.model), given.descriptions, multi_label=given.multi_label,
            opening=given.opening,
        )  # fmt: skip
        with self._progress(total) as shown:

            def advance(done: int) -> None:
                self._encoded = (done, total)
                shown.advance(done)
                if self._ended:
                    raise SystemExit

            probe.encode(advance)
        centred = probe.vectors - probe.vectors.mean(0)
        lengths = np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
        with self._lock:
            self._probe, self._near, self._encoded = probe, centred / lengths, None
            self._pool = self._pool_of(probe.vectors[: self.num_asked])

    def _learn(self) -> None:
        with self._lock:
            probe, labelled, classes = self._probe, self._labelled(), list(self.classes)
            random = {at for at, _ in labelled if self._drawn(at) == "random"}
        assert probe is not None
        learned = probe.learn(labelled, random, classes)
        with self._lock:
            self._learned = learned
            self._choose()

    def _labelled(self) -> Labelled:
        """What a probe learns from; the lock is held."""
        several = self.settings.multi_label
        return [
            (at, one.labels) for at, one in self._answers.items()
            if one.labels or (several and one.status == NONE)
        ]  # fmt: skip
