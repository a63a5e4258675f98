"""``tidybert pretrain``: the figures it tells, and what is refused."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.corpus.building import build_corpus
from tidybert.reporting import pretraining_curves
from tidybert.tokenization import BertTokenizer

QUICK = ["--recipe", "fast", "--max-steps", "3", "--tokens-per-step", "256", "--device", "cpu"]
QUICK += ["--max-seq-length", "32", "--eval-tokens", "256"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    text = folder / "text.txt"
    documents = [f"the red cat was near the {n} dog\nand we saw a hen" for n in range(80)]
    text.write_text("\n\n".join(documents) + "\n")
    build_corpus([text], BertTokenizer.from_pretrained(tiny_model), folder / "shards", held_out=0.2)
    return folder / "shards"


def command(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    return ["pretrain", str(model), "--data", str(data), "--out", str(out), *QUICK, *more]


def test_figures_are_told_and_printed(
    tiny_model: Path, shards: Path, tmp_path: Path, capsys: Any
) -> None:
    run = tmp_path / "run"

    assert shell(command(tiny_model, shards, run)) == 0

    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "perplexity" in out
    assert "step 1 of 3: mlm" in err
    assert "step 3, held-out text: mlm_loss" in err
    assert f"the model is in {run}" in err
    assert shell(command(tiny_model, shards, run, "--resume")) == 0
    assert "there is nothing to resume" in capsys.readouterr().err
    assert shell(["next-sentence", str(run), "the red cat", "we saw a hen", "--json"]) == 0
    assert shell(["fill-mask", str(run), "the [MASK] cat", "--json"]) == 0


def test_the_share_of_the_peak_is_told_where_it_is_known(
    tiny_model: Path, shards: Path, tmp_path: Path, capsys: Any
) -> None:
    flags = ["--peak-tflops", "0.001"]
    assert shell(command(tiny_model, shards, tmp_path / "run", *flags)) == 0

    told = capsys.readouterr().err
    assert re.search(r"tokens/s \(\d+% of the peak\), ", told)
    assert "of the peak of 1 x " in told


def test_curves_are_drawn_at_each_measurement_and_at_the_end(
    tiny_model: Path, shards: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    write = pretraining_curves.write_curves

    def written(run: Path) -> Path | None:
        path = write(run)
        seen.append((run / "curves.svg").read_text())
        return path

    monkeypatch.setattr(pretraining_curves, "write_curves", written)
    run = tmp_path / "run"
    more = ("--eval-steps", "1", "--logging-steps", "1")
    assert shell(command(tiny_model, shards, run, *more)) == 0

    assert [re.findall(r"up to step (\d)", each)[0] for each in seen] == ["1", "2", "3", "3"]
    assert "held-out text" in seen[0]
    assert f"the losses are drawn in {run / 'curves.svg'}" in capsys.readouterr().err


def test_a_run_does_without_curves_that_cannot_be_written(
    tiny_model: Path, shards: Path, tmp_path: Path, capsys: Any
) -> None:
    run = tmp_path / "run"
    # No file can take the place of a folder.
    (run / "curves.svg").mkdir(parents=True)
    (run / "curves.svg" / "other").touch()
    (run / "checkpoints" / "step-1").mkdir(parents=True)

    assert shell(command(tiny_model, shards, run, "--resume")) == 0

    err = capsys.readouterr().err
    assert err.count(f"{run / 'curves.svg'} cannot be written: ") == 2
    assert "the losses are drawn" not in err
    assert f"the model is in {run}" in err


def test_json_is_one_object(tiny_model: Path, shards: Path, tmp_path: Path, capsys: Any) -> None:
    assert shell(command(tiny_model, shards, tmp_path / "run", "--json", "--objective", "mlm")) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed["num_steps"] == 3
    assert printed["num_bad_steps"] == 0
    assert "nsp_loss" not in printed


def test_tensorboard_is_told_each_figure_once(
    tiny_model: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[Any] = []

    class SummaryWriter:
        def __init__(self, directory: Path, purge_step: int) -> None:
            self.directory, self.purge_step = directory, purge_step
            self.figures: list[tuple[str, int]] = []
            self.is_closed = False
            writers.append(self)

        def add_scalar(self, name: str, _value: float, step: int) -> None:
            self.figures.append((name, step))

        def close(self) -> None:
            self.is_closed = True

    module = ModuleType("torch.utils.tensorboard")
    monkeypatch.setattr(module, "SummaryWriter", SummaryWriter, raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    run = tmp_path / "run"

    assert (
        shell(command(tiny_model, shards, run, "--log-to", "tensorboard", "--logging-steps", "1"))
        == 0
    )

    (writer,) = writers
    assert (writer.directory, writer.purge_step, writer.is_closed) == (run / "tensorboard", 1, True)
    assert [step for name, step in writer.figures if name == "train/loss"] == [1, 2, 3]
    assert ("eval/loss", 3) in writer.figures
    assert len(set(writer.figures)) == len(writer.figures)


def test_what_is_wrong_is_said(
    tiny_model: Path, shards: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell(command(tiny_model, tmp_path, tmp_path / "run")) == 1
    assert "tidybert build-corpus FILES" in capsys.readouterr().err
    assert shell(command(tiny_model, shards, shards)) == 2
    assert "is not empty" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert shell(command(tiny_model, shards, tmp_path / "run", "--log-to", "wandb")) == 2
    assert "pip install 'tidybert[tracking]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_config_repeats_a_run_to_the_same_bits(
    tiny_model: Path, shards: Path, tmp_path: Path
) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    assert shell(command(tiny_model, shards, first, "--keep-checkpoints")) == 0
    config = str(first / "arguments.json")
    assert (first / "checkpoints").exists()

    assert shell(["pretrain", "--config", config, "--out", str(again)]) == 0

    weights = "model.safetensors"
    assert (again / weights).read_bytes() == (first / weights).read_bytes()
    assert not (again / "checkpoints").exists()
    assert 'pipeline_tag: "fill-mask"' in (again / "README.md").read_text()


def test_several_corpora_with_weights(
    tiny_model: Path, shards: Path, tmp_path: Path, capsys: Any
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"a blue hen {n}\nthe dog was near" for n in range(40)) + "\n")
    books = tmp_path / "books"
    build_corpus([text], BertTokenizer.from_pretrained(tiny_model), books, held_out=0.2)
    run = tmp_path / "run"
    mixed = ["--data", f"{books}:0.5"]

    assert shell(command(tiny_model, shards, run, *mixed)) == 0

    out, err = capsys.readouterr()
    assert "the same, in books" in " ".join(out.split())
    assert "mlm_loss/shards" in err
    again = ["pretrain", str(tiny_model), "--config", str(run / "arguments.json")]
    assert shell([*again, "--out", str(tmp_path / "again")]) == 0
    weights = [(each / "model.safetensors").read_bytes() for each in (run, tmp_path / "again")]
    assert weights[0] == weights[1]
    # arguments.json has one corpus as text.
    alone = tmp_path / "alone"
    assert shell(command(tiny_model, shards, alone)) == 0
    again = ["pretrain", str(tiny_model), "--config", str(alone / "arguments.json")]
    assert shell([*again, "--out", str(tmp_path / "alone-again")]) == 0
    capsys.readouterr()
    assert shell(command(tiny_model, shards, tmp_path / "no", "--data", f"{books}:0")) == 2
    assert "the weight '0' is not a number above 0" in capsys.readouterr().err
