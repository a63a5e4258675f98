"""A run that changes on purpose equals a run that was told so from the beginning."""

import json
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidybert.corpus.building import build_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import TrainingError, UsageError
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.stream import PhasedStream, StepBatches
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, rate_at
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.reports import StepReport

Small = Callable[..., Any]
RUN = "tidybert.pretraining.pretraining_run"
AT = 5
"""The steps before the change."""
WHOLE = {"eval_steps": 100}
"""Measured at the end alone, so that the last weights are the best."""


def weights_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def stop_after(step: int) -> Reporter:
    def report(done: StepReport) -> None:
        if done.step == step:
            signal.raise_signal(signal.SIGTERM)

    return Reporter(step=report)


def stopped(small: Small, run: Path, step: int = AT, **given: Any) -> None:
    with pytest.raises(TrainingInterrupted):
        small(run, reporter=stop_after(step), **given)


def changes_of(run: Path) -> list[dict[str, Any]]:
    return list(json.loads((run / "arguments.json").read_text())["record"]["changed_on_the_way"])


@pytest.fixture(scope="session")
def other_corpus(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Documents of other animals."""
    generator = random.Random(1)
    folder = tmp_path_factory.mktemp("other")
    text = folder / "text.txt"
    words = [f"a {generator.choice(('hen', 'cow'))} is near" for _ in range(100)]
    text.write_text("\n\n".join(f"{line}\n{line}\nnew {n}" for n, line in enumerate(words)))
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([text], tokenizer, folder / "shards", held_out=0.1)
    return folder / "shards"


def tell_rates(monkeypatch: pytest.MonkeyPatch, **before: Any) -> None:
    """Have a run take the rates of other arguments up to the change."""

    def told(step: int, arguments: PretrainingArguments) -> float:
        return rate_at(step, replace(arguments, **before) if step < AT else arguments)

    monkeypatch.setattr("tidybert.pretraining.pretraining_objective.rate_at", told)


def tell_data(
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[PretrainingPlan], PretrainingPlan],
    *,
    new_order: bool,
) -> None:
    """Have a run take the steps of another plan up to the change, and then the next epoch."""

    class Told(PhasedStream):
        def __init__(self, plan: PretrainingPlan, micro_batch_tokens: int) -> None:
            super().__init__(plan, micro_batch_tokens)
            self.earlier = PhasedStream(before(plan), micro_batch_tokens)

        def take(self, step: int, position: Sequence[int]) -> StepBatches:
            if step < AT:
                return self.earlier.take(step, position)
            if step == AT and new_order:
                position = [position[0], position[1] + 1, 0, 0]
            return super().take(step, position)

    monkeypatch.setattr(f"{RUN}.PhasedStream", Told)


RATES = {
    "more steps": {"max_steps": 16},
    "another rate": {"learning_rate": 1e-3},
    "another schedule": {"schedule": "linear"},
    "all of them": {"max_steps": 20, "learning_rate": 3e-3, "warmup_steps": 0},
}


@pytest.mark.parametrize("after", RATES.values(), ids=RATES.keys())
def test_other_rates_from_here_on(
    after: dict[str, Any], small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {"max_steps": 12, "learning_rate": 1e-2, "schedule": "trapezoid", "warmup_steps": 2}
    stopped(small, tmp_path / "run", **WHOLE, **before)

    with pytest.raises(TrainingError, match="change changes them from here on"):
        small(tmp_path / "run", resume=True, **WHOLE, **{**before, **after})
    small(tmp_path / "run", resume=True, change=True, **WHOLE, **{**before, **after})

    changed = {name: [before[name], now] for name, now in after.items()}
    assert changes_of(tmp_path / "run") == [{"step": AT, **changed}]
    tell_rates(monkeypatch, **before)
    small(tmp_path / "told", **WHOLE, **{**before, **after})
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "told")


DATA: dict[str, tuple[dict[str, Any], Callable[[PretrainingPlan], PretrainingPlan], bool]] = {
    "larger steps": (
        {"tokens_per_step": 512},
        lambda plan: replace(plan, arguments=replace(plan.arguments, tokens_per_step=256)),
        False,
    ),
    "more masks": (
        {"masking": MaskingOptions(masked_lm_prob=0.5)},
        lambda plan: replace(plan, masking=MaskingOptions(masked_lm_prob=0.3)),
        False,
    ),
    "shorter sequences": (
        {"instances": InstanceOptions(max_seq_length=24)},
        lambda plan: replace(plan, instances=InstanceOptions(max_seq_length=32)),
        True,
    ),
}


@pytest.mark.parametrize(("after", "before", "new_order"), DATA.values(), ids=DATA.keys())
def test_other_instances_from_here_on(
    after: dict[str, Any],
    before: Callable[[PretrainingPlan], PretrainingPlan],
    new_order: bool,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped(small, tmp_path / "run", **WHOLE)
    small(tmp_path / "run", resume=True, change=True, **WHOLE, **after)

    tell_data(monkeypatch, before, new_order=new_order)
    small(tmp_path / "told", **WHOLE, **after)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "told")


def test_another_corpus_from_here_on(
    corpus: Path,
    other_corpus: Path,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped(small, tmp_path / "run", **WHOLE)
    with pytest.raises(TrainingError, match=r"\n  the corpus: not the same as before$"):
        small(tmp_path / "run", resume=True, data=other_corpus, **WHOLE)
    small(tmp_path / "run", resume=True, change=True, data=other_corpus, **WHOLE)

    first = TokenCorpus(corpus)
    tell_data(monkeypatch, lambda plan: replace(plan, corpus=first), new_order=True)
    small(tmp_path / "told", data=other_corpus, **WHOLE)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "told")
    assert [*changes_of(tmp_path / "run")[0]] == ["step", "corpus"]


def test_a_change_survives_a_kill_before_its_first_checkpoint(small: Small, tmp_path: Path) -> None:
    given = {**WHOLE, "learning_rate": 2e-3, "save_steps": 100}
    for name in ("run", "other"):
        stopped(small, tmp_path / name, **{**given, "learning_rate": 1e-2})
    again = {**given, "resume": True, "change": True}
    small(tmp_path / "run", **again)

    class Killed(BaseException):
        pass

    def kill(done: StepReport) -> None:
        if done.step == 9:
            raise Killed

    with pytest.raises(Killed):
        small(tmp_path / "other", reporter=Reporter(step=kill), **again)
    # A supervisor gives the same command for ever.
    small(tmp_path / "other", **again)

    assert weights_of(tmp_path / "other") == weights_of(tmp_path / "run")
    assert changes_of(tmp_path / "other") == [{"step": AT, "learning_rate": [1e-2, 2e-3]}]


def test_what_cannot_change_is_refused_though_change_is_given(small: Small, tmp_path: Path) -> None:
    stopped(small, tmp_path / "run")

    with pytest.raises(
        TrainingError, match=r"cannot change.*\n  optimizer: muon before, adamw now"
    ):
        small(tmp_path / "run", resume=True, change=True, optimizer="adamw")
    with pytest.raises(TrainingError, match="has done 5 steps, and the run would have 4"):
        small(tmp_path / "run", resume=True, change=True, max_steps=4)
    with pytest.raises(UsageError, match="change needs resume"):
        small(tmp_path / "new", change=True)


def test_the_best_is_chosen_again_where_something_else_is_measured(
    small: Small, tmp_path: Path
) -> None:
    given = {"max_steps": 6, "eval_steps": 3, "learning_rate": 1e-3}
    stopped(small, tmp_path / "run", 4, **given)
    best_before = json.loads((tmp_path / "run/checkpoints/step-4/training_state.json").read_text())
    assert best_before["best_step"] == 3

    result = small(
        tmp_path / "run",
        resume=True,
        change=True,
        masking=MaskingOptions(masked_lm_prob=0.6),
        **given,
    )

    assert result.best_step == 6


def test_a_corpus_is_added_and_shares_change_on_the_way(
    corpus: Path, other_corpus: Path, small: Small, tmp_path: Path
) -> None:
    stopped(small, tmp_path / "run", **WHOLE)
    for step, shares in ((7, [f"{corpus}:3", f"{other_corpus}:1"]), (9, [corpus, other_corpus])):
        given = {**WHOLE, "data": shares, "resume": True}
        with pytest.raises(TrainingError, match="change changes them"):
            small(tmp_path / "run", **given)
        with pytest.raises(TrainingInterrupted):
            small(tmp_path / "run", change=True, reporter=stop_after(step), **given)
    small(tmp_path / "run", **given)

    changes = changes_of(tmp_path / "run")
    assert [each["step"] for each in changes] == [AT, 7]
    assert changes[1]["data"] == ["shares of 0.75, 0.25", "shares of 0.5, 0.5"]
    state = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert "eval_mlm_loss/shards" not in state
