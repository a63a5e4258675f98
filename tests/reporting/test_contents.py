"""What report.json holds: figures by hand, and the parts that each kind of task has."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.reporting.conftest import all_right

from tidybert.metrics.bootstrap import Interval, Intervals
from tidybert.reporting.contents import REPORT_VERSION, report_contents
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.report_page import report_page
from tidybert.tasks.answers import Judgement, ScoredEntities

TRUST = Path(__file__).parents[2] / "docs" / "trust.md"


def notes_of(evaluation: Evaluation) -> str:
    return "\n".join(report_contents(evaluation)["notes"])


def judgement(expected, predicted, confidence, row, tokens=5):
    p = confidence if expected == predicted else 1 - confidence
    right = float(expected == predicted)
    return Judgement(f"text {row}", expected, predicted, right, confidence, p, tokens, row)


@pytest.fixture
def four() -> Evaluation:
    """Four examples of two classes, of which the second is wrong."""
    judgements = [
        judgement("no", "no", 0.9, 2),
        judgement("no", "yes", 0.8, 3),
        judgement("yes", "yes", 0.7, 4),
        judgement("yes", "yes", 0.6, 5),
    ]
    return Evaluation(
        task="classify",
        model="run",
        data="dev.csv",
        date="today",
        metrics={
            "f1": 0.8,
            "accuracy": 0.75,
            "per_label": {"no": {"f1": 2 / 3, "support": 2}, "yes": {"f1": 0.8, "support": 2}},
            "confusion_matrix": [[1, 1], [0, 2]],
            "num_examples": 4,
            "num_truncated": 1,
            "num_windowed": 0,
            "num_windows": 0,
        },
        judgements=judgements,
        max_seq_length=8,
        truncation="were cut to max_seq_length",
        meanings={"accuracy": "share", "f1": "F1 of {positive}"},
        metric="accuracy",
        label_names=["no", "yes"],
        probabilities=np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]),
        temperature=1.2,
        intervals=Intervals({"accuracy": Interval(0.25, 1.0)}, 0.95, 1000, 0),
    )


def test_a_literal_example(four: Evaluation) -> None:
    found = report_contents(four)

    assert found["report_version"] == REPORT_VERSION
    assert (found["num_examples"], found["num_truncated"], found["max_seq_length"]) == (4, 1, 8)
    assert list(found["metrics"]) == ["accuracy", "f1"]
    assert found["metrics"]["accuracy"] == {
        "value": 0.75,
        "low": 0.25,
        "high": 1.0,
        "baseline": 0.5,
        "meaning": "share",
    }
    assert found["baseline"] == {
        "label": "no",
        "metrics": {"accuracy": 0.5, "macro_f1": pytest.approx(1 / 3), "matthews": 0.0, "f1": 0.0},
    }
    assert found["metrics"]["f1"]["low"] is None
    assert found["metrics"]["f1"]["meaning"] == "F1 of yes"
    assert found["tables"]["per_label"]["no"] == {"f1": 2 / 3, "support": 2}
    assert found["confusion"]["pairs"] == [
        {"expected": "no", "predicted": "yes", "count": 1, "share_of_expected": 0.5}
    ]
    assert found["calibration"]["mean_confidence"] == pytest.approx(0.75)
    assert found["calibration"]["expected_calibration_error"] == pytest.approx(
        (0.1 + 0.8 + 0.3 + 0.4) / 4
    )
    assert found["calibration"]["brier_score"] == pytest.approx(2 * (0.01 + 0.64 + 0.09 + 0.16) / 4)
    assert found["coverage"] is None
    assert found["errors"]["total"] == 1
    assert found["errors"]["shown"][0] == {
        "row": 3,
        "id": None,
        "text": "text 3",
        "expected": "no",
        "predicted": "yes",
        "correct": 0.0,
        "confidence": 0.8,
        "expected_probability": pytest.approx(0.2),
        "num_tokens": 5,
    }
    assert [each["row"] for each in found["uncertain"]["shown"]] == [5, 4, 3, 2]
    assert found["uncertain"]["shown"][0]["second"] == "no"
    assert found["uncertain"]["shown"][0]["margin"] == pytest.approx(0.2)
    suspected = found["suspected_label_errors"]
    assert (suspected["total"], suspected["shown"][0]["row"]) == (1, 3)
    assert suspected["shown"][0]["suggested"] == "yes"
    assert found["lengths"] is found["scores"] is found["training"] is None


def test_entities_of_a_literal_example(answered) -> None:
    """Of 4 entities the candidates have 3; from the score 0.8 on 3 are given, 2 of them right."""
    every = ScoredEntities(np.array([0.3, 0.9, 0.8, 0.8]), np.array([1, 1, 1, 0]) > 0, 4, 0.8)
    evaluation = answered(
        entities=ScoredEntities(np.array([0.9, 0.8, 0.8]), np.array([1, 1, 0]) > 0, 4),
        entity_types={
            "PER": every,
            "LOC": replace(every, threshold=None),
            "RARE": replace(every, num_true=0),
        },
        dev_metrics={"per_label": {"PER": {"recall": 0.95, "precision": 0.7, "threshold": 0.8}}},
    )

    found = report_contents(evaluation)["entities"]

    measured = found["calibration"]
    assert (found["num_examples"], measured["num_examples"]) == (4, 3)
    assert measured["accuracy"] == pytest.approx(2 / 3)
    assert measured["expected_calibration_error"] == pytest.approx((0.1 + 2 * 0.3) / 3)
    assert [each["count"] for each in measured["bins"]] == [2, 1]
    # Wilson's interval around 1 of 2.
    assert (measured["bins"][0]["low"], measured["bins"][0]["high"]) == pytest.approx(
        (0.0945, 0.9055), abs=1e-4
    )
    assert list(found["types"]) == ["PER", "LOC"]
    person = found["types"]["PER"]
    curve = [(0.9, 1, 0.25), (0.8, 2 / 3, 0.5), (0.3, 0.75, 0.75)]
    names = ("threshold", "precision", "recall")
    assert [tuple(each[name] for name in names) for each in person["points"]] == [
        pytest.approx(each) for each in curve
    ]
    # 0.8 of them and more are not among the candidates.
    assert person["choices"] == person["points"][1:2]
    chosen = person["chosen"]
    assert (chosen["threshold"], chosen["num_given"]) == (0.8, 3)
    assert chosen["recall"] == pytest.approx({"value": 0.5, "low": 0.15, "high": 0.85}, abs=1e-3)
    assert chosen["precision"]["value"] == pytest.approx(2 / 3)
    assert chosen["dev"] == {"recall": 0.95, "precision": 0.7}
    assert found["types"]["LOC"]["chosen"] is None
    page = report_page(report_contents(evaluation))
    assert page.count("The dot is the one of this model") == 1
    assert "score 0.8: recall 0.500, precision 0.667" in page
    assert "2 entities: score 0.800, precision 0.500" in page


def test_many_types_and_none(answered) -> None:
    every = ScoredEntities(np.array([0.5]), np.array([True]), 1)
    types = {f"T{at}": replace(every, num_true=at) for at in range(1, 31)}
    none = ScoredEntities(np.empty(0), np.empty(0, np.bool_), 2)
    evaluation = answered(entities=none, entity_types=types)

    contents = report_contents(evaluation)
    page = report_page(contents)

    assert contents["entities"]["calibration"] is None
    assert "The answers have 0 entities, the labels 2." in page
    assert "These are the 24 most frequent of 30 types" in page
    assert "T7: what finding" in page
    assert "T6: what finding" not in page
    assert report_contents(answered())["entities"] is None


def test_what_was_cut_is_told_in_the_words_of_the_task(answered) -> None:
    found = report_contents(answered())

    assert found["truncation"] == "had their question cut to --max-query-length"
    assert found["notes"][0].startswith(f"1 of 50 examples {found['truncation']}: ")


def drawn(low: float, high: float, count: int = 1000, ran_out: bool = False) -> Intervals:
    return Intervals({"accuracy": Interval(low, high)}, 0.95, count, 0, ran_out)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, "1 of 4 examples were cut to max_seq_length: the model saw only a part"),
        ({}, "few examples, 4"),
        ({"intervals": drawn(1, 1)}, "every resample has the same accuracy"),
        ({"temperature": 20.0}, "upper bound"),
        ({"intervals": Intervals({}, 0.95, 12, 0, True)}, "ran out after 12 resamples, too few"),
        ({"intervals": drawn(0.1, 0.9, 400, True)}, "come from 400 resamples"),
        ({"metrics": {"accuracy": 0.5}}, "accuracy is not above that of the most frequent class"),
    ],
)
def test_what_should_be_known_first_is_noted(four: Evaluation, changes, note: str) -> None:
    changed = {**changes, "metrics": {**four.metrics, **changes.get("metrics", {})}}

    assert note in notes_of(replace(four, **changed))
    assert (note in notes_of(four)) == (not changes)


def test_fewer_resamples_on_request_are_no_lack_of_time(four: Evaluation) -> None:
    few = replace(four, intervals=drawn(0.1, 0.9, 400))
    assert "time ran out" not in notes_of(few)
    assert report_contents(few)["bootstrap"]["num_resamples"] == 400


def test_coverage_begins_where_twenty_examples_answer(four: Evaluation) -> None:
    judgements = [
        replace(one, confidence=one.confidence - at / 1000)
        for at in range(10)
        for one in four.judgements
    ]
    few = replace(four, judgements=judgements, probabilities=None)
    found = report_contents(few)["coverage"]

    assert found["points"][0]["coverage"] == pytest.approx(20 / 40)
    assert [each["coverage"] for each in found["choices"]] == [1.0, 0.95, 0.9, 0.8, 0.7, 0.5]
    assert found["choices"][-1] == {
        "threshold": pytest.approx(0.791),
        "coverage": 0.5,
        "accuracy": pytest.approx(0.5),
    }


def test_only_a_model_that_is_mostly_right_judges_labels(classified) -> None:
    weak, strong = report_contents(classified()), report_contents(all_right(classified()))

    assert not weak["suspected_label_errors"]["reliable"]
    assert strong["suspected_label_errors"]["reliable"]
    assert strong["errors"] == {"total": 0, "shown": []}
    sure = [each["confidence"] for each in weak["errors"]["shown"]]
    assert sure == sorted(sure, reverse=True)
    assert all(each["expected"] != each["predicted"] for each in weak["errors"]["shown"])


def test_an_answer_that_is_right_in_part_is_wrong_in_part(answered) -> None:
    found = report_contents(answered())
    assert found["errors"]["total"] == 26
    assert {each["correct"] for each in found["errors"]["shown"]} == {0.0, 0.5}
    assert found["calibration"]["accuracy"] == pytest.approx(
        np.mean([one.correct for one in answered().judgements])
    )
    assert found["confusion"] is found["suspected_label_errors"] is None
    assert [each["confidence"] for each in found["uncertain"]["shown"][:2]] == [0.3, 0.3]
    assert "margin" not in found["uncertain"]["shown"][0]


def test_scores_have_residuals_instead_of_classes(scored) -> None:
    evaluation = scored()
    found = report_contents(evaluation)
    off = [float(one.predicted) - float(one.expected) for one in evaluation.judgements]

    assert found["scores"]["mean_absolute_error"] == pytest.approx(np.abs(off).mean())
    assert found["scores"]["mean_residual"] == pytest.approx(np.mean(off))
    assert found["scores"]["root_mean_square_error"] ** 2 == pytest.approx(
        evaluation.metrics["mse"], abs=1e-3
    )
    assert sum(found["scores"]["residuals"]["counts"]) == len(off)
    assert found["errors"]["shown"][0]["residual"] == pytest.approx(max(off, key=abs))
    assert sum(each["count"] for each in found["lengths"]) == len(off)
    for part in ("calibration", "coverage", "uncertain", "confusion", "suspected_label_errors"):
        assert found[part] is None


def test_lengths_are_groups_of_about_equal_size_that_lose_nobody(classified) -> None:
    evaluation = classified(count=400)
    groups = report_contents(evaluation)["lengths"]

    assert sum(each["count"] for each in groups) == 400
    assert 2 <= len(groups) <= 6
    assert all(a["to"] < b["from"] for a, b in pairwise(groups))
    for group in groups:
        inside = [
            one.correct
            for one in evaluation.judgements
            if group["from"] <= one.num_tokens <= group["to"]
        ]
        assert group["count"] == len(inside)
        assert group["mean"] == pytest.approx(np.mean(inside))
        assert group["low"] <= group["mean"] <= group["high"]


def test_parts_that_make_no_sense_are_left_out(classified, answered) -> None:
    def changed(evaluation: Evaluation, **changes: object) -> Evaluation:
        return replace(
            evaluation, judgements=[replace(o, **changes) for o in evaluation.judgements]
        )

    assert report_contents(changed(classified(), num_tokens=9))["lengths"] is None
    found = report_contents(changed(answered(), confidence=None))
    assert found["calibration"] is found["coverage"] is found["uncertain"] is None
    assert found["errors"]["shown"][0]["correct"] == 0.0


@pytest.mark.parametrize("kind", ["classified", "scored", "answered"])
def test_everything_is_json_and_its_keys_are_documented(kind, request) -> None:
    found = report_contents(request.getfixturevalue(kind)())
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again == found

    documented = TRUST.read_text(encoding="utf-8")
    for key in found:
        assert f"`{key}`" in documented, key


def test_as_many_pairs_and_points_as_a_reader_can_take(classified, scored) -> None:
    assert len(report_contents(classified(count=500, classes=40))["confusion"]["pairs"]) == 30
    assert len(report_contents(classified(count=500))["coverage"]["points"]) <= 200
    assert len(report_contents(scored(count=2500))["scores"]["points"]) <= 2000
