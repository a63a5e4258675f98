"""ShownReport: the page of an evaluation in memory, in a notebook and on disk."""

import json
from pathlib import Path
from typing import Any

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
