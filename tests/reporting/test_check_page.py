"""The page of a check: whole, alone, and never the texts' to command."""

import csv
import json
from pathlib import Path
from typing import Any

from tests.reporting.trees import ATTACK, parsed, text_of

from tidybert.data.checks import DataReport
from tidybert.reporting.report_page import check_page, write_check


def contents(**overrides: Any) -> dict[str, Any]:
    one = {"row": 2, "text": ATTACK, "text_pair": None, "label": ATTACK}
    other = {**one, "row": 5, "text": "=1+1"}
    suspected = {**one, "label_probability": 0.01, "suggested": "b", "suggested_probability": 0.9}
    report = DataReport("classify", 9, None, {"a": 4, "b": 5}, warnings=["take care"])
    labels = {
        "agreement": 0.8,
        "reliable": False,
        "not_judged": ["rare"],
        "suspected": [suspected] * 2,
        "mixed_up": [{"classes": ["a", "b"], "count": 3, "share": 0.25}],
    }
    return {
        "tidybert_version": "1",
        "task": "classify",
        "data": "data/a.csv",
        "dev": None,
        "model": "minilm",
        "report": report.to_dict(),
        "labels": labels,
        "contradicting": [{"texts": [one, other], "cosine": 0.97}],
        "leaked": [{"texts": [other, one], "cosine": 0.99}],
        **overrides,
    }


def test_the_page_has_all_findings_and_no_element_of_a_text() -> None:
    page = check_page(contents())
    root = parsed(page)
    text = " ".join(text_of(root).split())

    assert not {"img", "link", "iframe"} & {each.tag for each in root.iter()}
    assert len(list(root.iter("script"))) == 1
    for said in (
        "warning: take care",
        "80.0 %",
        "row 2",
        "cosine 0.970",
        "25.0 %",
        "rare",
    ):
        assert said in text
    assert {each.get("id") for each in root.iter("h2")} == {
        each.get("href", "#").removeprefix("#") for each in root.iter("a")
    }


def test_a_check_that_found_nothing_says_so() -> None:
    report = DataReport("regress", 9, None).to_dict()
    nothing = dict.fromkeys(("labels", "contradicting", "leaked"))

    root = parsed(check_page(contents(report=report, **nothing)))

    assert "The checks before training found nothing." in text_of(root)
    assert [each.get("id") for each in root.iter("h2")] == ["checks"]


def test_the_files_are_written_together(tmp_path: Path) -> None:
    page = write_check(contents(), tmp_path / "out")

    assert page == tmp_path / "out" / "check.html"
    assert json.loads((tmp_path / "out/check.json").read_text())["labels"]["agreement"] == 0.8
    with (tmp_path / "out/corrections.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # A row for each example, however many reasons there are.
    assert [row["row"] for row in rows] == ["2", "5"]
    assert [row["correction"] for row in rows] == ["", ""]
    assert [row["suggested"] for row in rows] == ["b", ""]
    assert "probability of the label 0.010; almost the text of row 5" in rows[0]["why"]
    assert rows[1]["text"] == "'=1+1"
