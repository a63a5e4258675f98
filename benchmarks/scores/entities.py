"""Entities: how honest their scores are, and what thresholds find.

    python -m benchmarks entities --write docs/names.md

A model is trained on CoNLL-2003, or --run names one.  Its dev chooses scores and thresholds; its
test and all of Wikigold are measured.  A word is gone where an entity given covers it, right or
wrong.  In a trial a random half of dev and test chooses, and the other half is measured.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.harness import datasets, script
from tidybert import Predictor, finetune
from tidybert.metrics.calibration import expected_calibration_error, reliability_bins
from tidybert.metrics.entity_scores import entities as marked
from tidybert.tasks.tags.entity_scores import EntityScores
from tidybert.tasks.tags.tag_files import TaggedExample, read_tagged
from tidybert.tasks.tags.tagging import TagAnswers, Tagging
from tidybert.tasks.task_options import TagOptions
from tidybert.training.runs.run_directory import is_finished

CONLL: Final = "CoNLL-2003"
TESTS: Final = ("test", "wikigold")
PERSON: Final = "PER"
EPOCHS: Final = 2
TRIALS: Final = 10
SETTINGS: Final = {
    "as trained": TagOptions(),
    **{f"`--min-recall {share}`": TagOptions(min_recall=share) for share in (0.9, 0.95, 0.99)},
    "`--min-precision 0.95`": TagOptions(min_precision=0.95),
    **{
        f"`--min-recall {PERSON}={share}`": TagOptions(min_recall=f"{PERSON}={share}")
        for share in (0.95, 0.99)
    },
}
PERSONS: Final = ("as trained", *(name for name in SETTINGS if PERSON in name))
"""The settings that are measured on persons alone, too or only."""
SCORES: Final = {
    "mean probability of the words' tags": "mean",
    "probability of the entity, before the fit": "lattice",
    "the same, fitted on dev": "fitted",
}


@dataclass(frozen=True)
class Measured:
    """A model's answers to dev, test and Wikigold, computed once."""

    run: Path

    @cached_property
    def train(self) -> list[TaggedExample]:
        return datasets.examples_of(CONLL, "train")

    @cached_property
    def parts(self) -> dict[str, list[TaggedExample]]:
        (train,) = datasets.JOBS[CONLL].files("train")
        wikigold = [
            one for part in ("train", "dev") for one in datasets.examples_of("wikigold", part)
        ]
        dev = list(read_tagged(str(train.with_name("dev.txt")), need_label=True))
        return {"dev": dev, "test": datasets.examples_of(CONLL, "dev"), "wikigold": wikigold}

    @cached_property
    def answers(self) -> TagAnswers:
        """To the examples of all parts, in this order."""
        script.note(f"{self.run}: answering dev, test and Wikigold")
        every = [one for part in self.parts.values() for one in part]
        found = Predictor(self.run).examine(every, labelled=False)
        assert isinstance(found, TagAnswers)
        return found

    def of(self, *names: str) -> list[int]:
        """The numbers of some parts' examples."""
        edges = np.cumsum([0, *map(len, self.parts.values())]).tolist()
        starts = dict(zip(self.parts, pairwise(edges), strict=True))
        return [at for name in names for at in range(*starts[name])]

    def task(self, options: TagOptions, chosen: Sequence[int]) -> Tagging:
        """Tags with the scores and thresholds that some examples choose."""
        task = Tagging.from_examples(self.train, options)
        assert task.names == self.answers.task.names
        return task.calibrated(self.some(task, chosen))

    def some(self, task: Tagging, chosen: Sequence[int]) -> TagAnswers:
        """The same outputs of some examples, as another task decodes them."""
        number = {old: new for new, old in enumerate(chosen)}
        pairs = [
            (replace(one, example=number[one.example]), rows)
            for one, rows in zip(self.answers.features, self.answers.outputs, strict=True)
            if one.example in number
        ]
        examples = [self.answers.examples[at] for at in chosen]
        return TagAnswers(task, [each for _, each in pairs], [one for one, _ in pairs], examples)

    def errors(self, way: str) -> dict[str, float]:
        """The expected calibration error of the entities given, by part."""
        task = self.task(TagOptions(), self.of("dev"))
        if way != "fitted":
            task.entity_scores = EntityScores(1.0, 0.0) if way == "lattice" else None
        return {name: calibration_error(self.some(task, self.of(name))) for name in TESTS}

    def figures(self, options: TagOptions, type_name: str | None) -> dict[str, dict[str, float]]:
        """By part what is found at a setting, of all entities or of a type."""
        task = self.task(options, self.of("dev"))
        return {name: found_of(self.some(task, self.of(name)), type_name) for name in TESTS}

    def trial(self, options: TagOptions, seed: int) -> dict[str, int]:
        """Whether the half that did not choose has the share asked for, of all and by type."""
        order = np.random.default_rng(seed).permutation(self.of("dev", "test")).tolist()
        half = len(order) // 2
        task = self.task(options, order[:half])
        found = self.some(task, order[half:]).metrics()
        ((asked, shares),) = options.shares().items()
        metric, of_types = (
            asked.removeprefix("min_"),
            [found["per_label"][each] for each in task.thresholds],
        )
        (share,) = shares.values()
        measured = found if None in shares else of_types[0]
        return {
            "reached": int(measured[metric] >= share),
            "types_reached": sum(each[metric] >= share for each in of_types),
            "types": len(of_types),
        }


def calibration_error(answers: TagAnswers) -> float:
    """The expected calibration error of the entities given."""
    given = answers.entities_given()
    assert given is not None
    return expected_calibration_error(reliability_bins(given.scores, given.right))


def found_of(answers: TagAnswers, type_name: str | None) -> dict[str, float]:
    """Recall, precision, and how many entities and how many other words are gone."""
    metrics = answers.metrics()
    scores = metrics if type_name is None else metrics["per_label"][type_name]
    num_true = num_gone = num_others = others_gone = 0
    for example, given in zip(answers.examples, answers.found, strict=True):
        gone, true = (
            [each for each in found if type_name in (None, each.type)]
            for found in ([each for each, _ in given], marked(example.tags or ()))
        )
        covered, inside = (
            {at for each in found for at in range(*each[1:])} for found in (gone, true)
        )
        num_true += len(true)
        num_gone += sum(covered.issuperset(range(*each[1:])) for each in true)
        num_others += len(example.words) - len(inside)
        others_gone += len(covered - inside)
    return {
        "recall": scores["recall"],
        "precision": scores["precision"],
        "gone": num_gone / num_true,
        "others_gone": others_gone / num_others,
    }


def tables(results: script.Results) -> list[str]:
    """Markdown: calibration errors, and what is found at each setting, in percent."""
    rows = [
        [said, *(f"{line[name]:.3f}" for name in TESTS)]
        for said, way in SCORES.items()
        for line in results.where(score=way)
    ]
    lines = script.markdown(["calibration error of the score", CONLL, "Wikigold"], rows)
    rows = []
    for of in ("all", PERSON):
        for line in results.where(of=of):
            trials = results.where(trial=line["setting"])
            cells = [
                f"{100 * line[name][first]:.1f}, {100 * line[name][second]:.1f}"
                for name in TESTS
                for first, second in (("recall", "precision"), ("gone", "others_gone"))
            ]
            reached, of_types, types = (
                sum(each[key] for each in trials) for key in ("reached", "types_reached", "types")
            )
            said = f"{reached} of {len(trials)}" if trials else ""
            said += f"; by type {of_types} of {types}" if types > len(trials) else ""
            rows.append([line["setting"], "all" if of == "all" else "persons", *cells, said])
    what = ("recall, precision", "gone, other words")
    heads = [f"{name}: {each}" for name in (CONLL, "Wikigold") for each in what]
    return [*lines, "", *script.markdown(["setting", "of", *heads, "trials that reach it"], rows)]


def entities(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, help="a RUN of CoNLL-2003 (default: train one)")
    script.add_number(parser, "trials", TRIALS, "random halves")
    given = script.parse(parser, "model out write max-seq-length", out=Path("entities.jsonl"))
    run = given.run or given.out.with_suffix("")
    if not is_finished(run):
        (train,) = datasets.JOBS[CONLL].files("train")
        finetune(
            str(train),
            "tag",
            given.model,
            dev=str(train.with_name("dev.txt")),
            out=run,
            max_seq_length=given.max_seq_length,
            num_train_epochs=EPOCHS,
        )
    measured, results = Measured(run), script.Results(given.out)
    for way in SCORES.values():
        results.take({"score": way}, partial(measured.errors, way))
    for name, options in SETTINGS.items():
        whole = [] if name in PERSONS[1:] else [("all", None)]
        for of, type_name in [*whole, *[(PERSON, PERSON)] * (name in PERSONS)]:
            key = {"setting": name, "of": of}
            results.take(key, partial(measured.figures, options, type_name))
        for seed in range(given.trials if options.shares() else 0):
            results.take({"trial": name, "seed": seed}, partial(measured.trial, options, seed))
    script.show(tables(results), given.write, "entities")
