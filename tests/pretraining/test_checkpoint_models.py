"""RUN@STEP is a MODEL, in every command that takes one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from tidybert.catalog import find_model
from tidybert.cli.commands.serving import _last_of
from tidybert.cli.main import run as shell
from tidybert.errors import DataError, ModelNotFoundError
from tidybert.inference.pretraining_heads import MaskFiller
from tidybert.page.page_model import PageModel
from tidybert.page.views import VIEWS, run_of

Small = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "run"


@pytest.fixture
def kept(run: Path, small: Small) -> Path:
    """A finished run that keeps step 4 and 8 of 12 for good."""
    if not run.exists():
        small(run, save_steps=2, keep_every=2, save_total_limit=1, max_steps=10, eval_steps=4)
    return run


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert shell([*words]) == 0
    return capsys.readouterr().out


def test_every_nth_checkpoint_stays_when_the_run_is_finished(kept: Path) -> None:
    assert sorted(path.name for path in (kept / "checkpoints").iterdir()) == ["step-4", "step-8"]
    assert find_model(f"{kept}@8") == kept / "checkpoints/step-8"
    for name in (f"{kept}@6", f"{kept}@last"):
        with pytest.raises(ModelNotFoundError, match=r"no checkpoint of step .*; it has 4, 8"):
            find_model(name)


def test_transformers_opens_a_checkpoint(kept: Path) -> None:
    found = transformers.BertForPreTraining.from_pretrained(find_model(f"{kept}@4"))

    assert found.config.num_hidden_layers == 2


def test_commands_take_a_checkpoint(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f"{kept}@4"
    train = tmp_path / "train.csv"
    train.write_text("text,label\n" + "".join(f"{n} red cat,one\n{n} dog,two\n" for n in range(20)))

    filled = [
        output(capsys, "fill-mask", name, "the red [MASK]", "--json")
        for name in (model, f"{kept}@8")
    ]
    output(capsys, "convert", model, str(tmp_path / "theirs"), "--to", "huggingface")
    given = ["--train", str(train), "--max-seq-length", "16", "--max-steps", "4", "--json"]
    tuned = str(tmp_path / "tuned")
    output(capsys, "finetune", "classify", model, "--out", tuned, "--save-steps", "2",
           "--keep-every", "1", *given)  # fmt: skip
    measured = json.loads(output(capsys, "evaluate", f"{tuned}@2", str(train), "--json"))

    assert filled[0] != filled[1]
    assert (tmp_path / "theirs/model.safetensors").exists()
    assert 0 <= measured["accuracy"] <= 1


def test_checkpoints_compare_in_one_table(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output(capsys, "info", str(kept), "--checkpoints", "--json"))["steps"]

    assert [(each["step"], each["measured"], each["kept_for_good"]) for each in rows] == [
        (4, 4, True),
        (8, 8, True),
    ]
    logged = [json.loads(line) for line in (kept / "metrics.jsonl").read_text().splitlines()]
    losses = {each["step"]: each["eval_mlm_loss"] for each in logged if "eval_mlm_loss" in each}
    assert rows[1]["metrics"]["mlm_loss"] == losses[8]
    table = output(capsys, "info", str(kept), "--checkpoints")
    assert "mlm_accuracy" in table.replace("\n", "")
    assert f"{losses[8]:.4f}" in table


def test_the_page_shows_the_curves_and_what_each_checkpoint_fills_in(kept: Path) -> None:
    view = VIEWS["run"]
    found: Any = view(PageModel(str(kept), str(kept)), text="the red [MASK] is near")
    of_checkpoint: Any = view(PageModel(f"{kept}@4", f"{kept}@4"), at=1)

    assert found["picture"].startswith("<svg")
    assert [each["model"] for each in found["fills"]] == ["step 4", "step 8", "finished"]
    (answer,) = MaskFiller(f"{kept}@8", device="cpu").fill(["the red [MASK] is near"], top_k=3)
    assert found["fills"][1]["masks"] == answer["masks"]
    exec(compile(found["python"], "run", "exec"), {})
    assert of_checkpoint["fills"] == []
    assert of_checkpoint["picture"] == found["picture"]
    with pytest.raises(DataError, match=r"has no .MASK."):
        view(PageModel(str(kept), str(kept)), text="the red cat")


def test_the_page_opens_the_last_checkpoint_of_a_run_in_training(
    kept: Path, tmp_path: Path
) -> None:
    shutil.copytree(kept / "checkpoints", tmp_path / "run/checkpoints")
    shutil.copy(kept / "metrics.jsonl", tmp_path / "run")

    path = _last_of(str(tmp_path / "run"))

    assert path == f"{tmp_path / 'run'}@8"
    assert run_of(path) == tmp_path / "run"
    assert _last_of(str(kept)) == str(kept)
