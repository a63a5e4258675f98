"""ShownReport: the page of an evaluation in memory, in a notebook and on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

import tidybert


def test_a_model_in_memory_reports(tiny_model: Path, toy_examples: Any, tmp_path: Path) -> None:
    data = [(one.text, one.label) for one in toy_examples(24)]
    finished = tidybert.finetune(data, model=tiny_model, max_seq_length=32, max_steps=1)

    report = finished.report(data, resamples=20)

    assert report.metrics["accuracy"]["value"] == tidybert.evaluate(finished, data)["accuracy"]
    assert "ShownReport(" in repr(report)
    page = report.save(tmp_path / "report")
    assert page.name == "report.html"
    stored = json.loads((tmp_path / "report" / "report.json").read_text())
    assert stored["metrics"] == report.contents["metrics"]
    shown = report._repr_html_()
    assert shown.startswith('<iframe srcdoc="')
    assert shown.count("<") == 2  # the page is escaped


@pytest.mark.filterwarnings("ignore::tidybert.errors.DataWarning")
def test_a_run_that_tags_reports_what_its_entities_cost(tiny_model: Path, tmp_path: Path) -> None:
    """The report of another file has the scores that dev chose, with dev's own figures."""
    words = ["red", "cat", "the", "dog"]
    texts = [[*words[at % 4 :], "was"] for at in range(40)]
    data = [(each, tags(each)) for each in texts]
    tidybert.finetune(
        data,
        "tag",
        tiny_model,
        dev=data,
        out=tmp_path / "run",
        min_recall="ANIMAL=0.8",
        max_seq_length=16,
        num_train_epochs=3,
        learning_rate=1e-3,
    )
    kept = json.loads((tmp_path / "run" / "tidybert.json").read_text())

    tidybert.evaluate(tmp_path / "run", data, report=tmp_path / "report", resamples=100)

    stored = json.loads((tmp_path / "report" / "report.json").read_text())
    found, row = stored["entities"]["types"], stored["tables"]["per_label"]["ANIMAL"]
    assert list(found) == ["ANIMAL", "COLOUR"]
    chosen = found["ANIMAL"]["chosen"]
    assert chosen["threshold"] == kept["settings"]["thresholds"]["ANIMAL"]
    for name in ("recall", "precision"):
        assert chosen[name]["value"] == pytest.approx(row[name])
        assert chosen["dev"][name] == kept["metrics"]["per_label"]["ANIMAL"][name]
    assert chosen["dev"]["recall"] >= 0.8
    assert found["COLOUR"]["chosen"] is None
    given = stored["entities"]["calibration"]
    assert given["accuracy"] == pytest.approx(stored["metrics"]["precision"]["value"])
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Scores from which entities are given" in page


def tags(words: list[str]) -> list[str]:
    known = {"cat": "B-ANIMAL", "dog": "B-ANIMAL", "red": "B-COLOUR"}
    return [known.get(each, "O") for each in words]
