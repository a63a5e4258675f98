"""The model card: its head is YAML that hubs read, and a user's own README.md stays."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import tidybert
from tidybert.finetuning.finetuned_model import FinetunedModel


def test_the_card_says_what_the_run_knows_and_nothing_else(
    tiny_model: Path,
    toy_examples: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{one.text},{one.label}\n" for one in toy_examples(60)]
    Path("a|b <c>.csv").write_text("text,label\n" + "".join(rows))
    run = tmp_path / 'say "hi"\u2028\U0001f600'

    short: Any = {"max_steps": 1, "max_seq_length": 16}
    tidybert.finetune("a|b <c>.csv", model=tiny_model, dev=0.1, out=run, **short)

    _, head, body = (run / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["pipeline_tag"] == "text-classification"
    assert metadata.keys() == {"library_name", "pipeline_tag", "tags", "model-index"}
    (model,) = metadata["model-index"]
    assert model["name"] == run.name
    assert model["results"][0]["dataset"]["name"] == "a|b <c>.csv, a part held out"
    assert model["results"][0]["metrics"][0]["type"] == "accuracy"
    assert "| train | 54 | a\\|b &lt;c> .csv".replace("> .", ">.") in body
    assert "| 95 % interval |" in body
    assert "| accuracy | 0." in body
    assert "`animal`, `colour`" in body
    assert "AutoModelForSequenceClassification" in body


def test_no_name_or_label_becomes_markup_or_a_command(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = ["a\n\n# Heading\n```sh\nrm -rf ~\n```", "b`<img src=x>`` \u202e\x1b[31m"]
    rows = [{"text": f"a red cat {at}", "label": labels[at % 2]} for at in range(12)]
    data = tmp_path / "data"
    data.mkdir()
    (data / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "my run; touch PWNED"
    model = shutil.copytree(tiny_model, data / "base`model")

    short: Any = {"max_steps": 1, "max_seq_length": 16}
    tidybert.finetune(data / "t.jsonl", model=model, dev=data / "t.jsonl", out=run, **short)

    text = (run / "README.md").read_text(encoding="utf-8")
    assert "tidybert predict 'my run; touch PWNED' FILE\n" in text
    assert "`` base`model ``" in text
    labels = "```` a # Heading ```sh rm -rf ~ ``` ````, ``` b`<img src=x>`` \\u202e\\x1b[31m ```"
    assert f"Its 2 labels: {labels}\n" in text
    assert "F1 of the class b\\`&lt;img src=x>\\`\\` " in text
    assert not re.search("[\x1b\u202e]|^rm|^# H", text, re.MULTILINE)
    assert str(tmp_path) not in text
    assert "| train | 12 | t.jsonl |" in text

    # Where nothing is held out, figures of a probe name the model too.
    rows = [
        {"text": ("a red cat", "the dog saw")[at % 2], "label": "ab"[at % 2]} for at in range(20)
    ]
    (data / "u.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tidybert.finetune(data / "u.jsonl", model=model, out=tmp_path / "whole", **short)
    text = (tmp_path / "whole/README.md").read_text(encoding="utf-8")
    assert "a linear layer on the states of `` base`model ``, in 2 folds" in text
    assert str(tmp_path) not in text


def test_a_readme_of_the_user_stays(toy: Callable[..., FinetunedModel], tmp_path: Path) -> None:
    run = tmp_path / "toy"
    run.mkdir()
    (run / "README.md").write_text("mine")
    (run / "checkpoints").mkdir()

    toy(run=run, max_steps=1, dev=None, force=True)
    assert (run / "README.md").read_text() == "mine"

    (run / "README.md").unlink()
    toy(run=run, max_steps=1, dev=None, force=True)
    first = (run / "README.md").read_text()
    assert "nobody measured it" in first
    assert "model-index" not in first
    assert "a sequence had at most 16 tokens" in first
    toy(run=run, max_steps=2, dev=None, force=True)
    assert (run / "README.md").read_text() != first
