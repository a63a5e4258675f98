"""The rate at which instances are made, beside the rate at which a model trains on them."""

import json
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.corpus.building import build_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.instances import PretrainingInstances
from tidybert.pretraining.places import Position
from tidybert.pretraining.stream import InstanceStream
from tidybert.timing import pretraining_speed as bench
from tidybert.timing.measuring import UNTIMED_STEPS
from tidybert.timing.pretraining_speed import INSTANCE_SIDES as SIDES
from tidybert.timing.pretraining_speed import bench_instances, make_steps
from tidybert.timing.work import PretrainingWork
from tidybert.tokenization import BertTokenizer


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("corpus")
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."])
    (folder / "a.txt").write_text("\n".join(f"A {'b ' * n}. B a.\n" for n in range(40)))
    build_corpus([folder / "a.txt"], tokenizer, folder / "shards", held_out=0.0)
    return str(folder / "shards")


def test_steps_are_taken_one_after_the_other(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instances = PretrainingInstances(TokenCorpus(shards))
    stream = InstanceStream(instances, tokens_per_step=512, micro_batch_tokens=256)
    tokens: list[int] = []
    places: list[Position] = []

    class Counted:
        def take(self, position: Position) -> Any:
            taken = stream.take(position)
            tokens.append(taken.num_tokens)
            places.append(position)
            return taken

    # A clock that goes on by half a second each time that it is read.
    clock = SimpleNamespace(perf_counter=count(step=0.5).__next__)
    monkeypatch.setattr(bench, "time", clock)
    rates = make_steps(Counted(), seconds=2.0)  # type: ignore[arg-type]

    assert places[:2] == [Position(epoch=1), Position()]
    assert len(set(places)) == len(places) == 5
    assert rates == {
        "tokens_per_second": sum(tokens[1:]) / 2.0,
        "seconds_per_step": 0.5,
        "seek_seconds": 0.5,
    }


def test_ratios_are_of_the_same_round(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"instances": iter([90.0, 100.0, 80.0]), "training": iter([10.0, 5.0, 4.0])}
    asked = []

    def measured(module: str, side: str, given: dict[str, Any], threads: int | None) -> Any:
        asked.append(side)
        rate = next(rates[side])
        seek = {"seek_seconds": 0.25} if side == "instances" else {}
        return {"tokens_per_second": rate, "seconds_per_step": 1 / rate, "threads": 2, **seek}

    monkeypatch.setattr(bench, "run_apart", measured)
    result = bench_instances(PretrainingWork("tiny", shards, steps=4))

    first, second = SIDES
    assert asked == [first, second, second, first, first, second]
    assert result["samples"]["training"]["tokens_per_second"] == [10, 5, 4]
    assert result["medians"]["instances"]["tokens_per_second"] == 90
    assert result["ratios"]["tokens_per_second"] == 20
    assert result["ratios"]["seconds_per_step"] == pytest.approx(1 / 20)
    assert (result["threads"], result["seek_seconds"]) == (2, 0.25)


def test_the_command_for_real(
    shards: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "instances", "--size", "tiny", "--data", shards, "--rounds", "1"]
    arguments += ["--steps", str(UNTIMED_STEPS + 2), "--tokens-per-step", "256", "--threads", "1"]
    measured: dict[str, Any] = {}
    run_apart = bench.run_apart

    def recorded(module: str, side: str, *given: Any) -> Any:
        measured[side] = run_apart(module, side, *given)
        return measured[side]

    monkeypatch.setattr(bench, "run_apart", recorded)
    assert shell([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    # The table shows the same figures.
    monkeypatch.setattr(bench, "run_apart", lambda _module, side, *_given: measured[side])
    assert shell(arguments) == 0

    out, err = capsys.readouterr()
    assert "round 1 of 1: instances " in err
    assert "round 1 of 1: training " in err
    assert max(map(len, out.splitlines())) <= 80
    # How wide a column is depends on its figures.
    assert "instances training ratio" in " ".join(out.split())
    assert "the first step of another epoch: " in out
    assert "medians of 1 round; 1 thread; " in out
    assert (result["bench"], result["data"], result["threads"]) == ("instances", shards, 1)
    assert result["work"]["tokens_per_step"] == 256
    for side in SIDES:
        values = result["medians"][side]
        # A step has as many whole sequences as fit.
        assert 128 <= values["tokens_per_second"] * values["seconds_per_step"] <= 256
    made, trained = (result["medians"][side]["tokens_per_second"] for side in SIDES)
    assert result["ratios"]["tokens_per_second"] == pytest.approx(made / trained)


@pytest.mark.parametrize("what", ["instances", "pretrain"])
@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["--size", "mnii"], 1, "mini"),
        (["--data", "nowhere"], 1, "tidybert build-corpus FILES"),
        (["--device", "tpu"], 2, "--device tpu"),
        (["--steps", "3"], 2, "--steps"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(
    what: str, flags: list[str], status: int, message: str, shards: str, capsys: Any
) -> None:
    assert shell(["bench", what, "--data", shards, *flags]) == status
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
