"""Pre-training: it learns, is saved as a MODEL, and resumes with the same bits."""

import json
import math
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import DataError, TrainingError, UsageError
from tidybert.modeling import BertForPreTraining
from tidybert.pretraining.batches.instance_options import InstanceOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.masked_rows import masked_rows
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.batches.stream import InstanceStream
from tidybert.pretraining.pretraining_arguments import (
    PretrainingArguments,
    rate_at,
)
from tidybert.pretraining.pretraining_objective import loss_parts
from tidybert.storage.json_objects import json_checksum
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BertTokenizer
from tidybert.training import precision as precision_module
from tidybert.training.distributed import Processes
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.optimization import begin_step
from tidybert.training.reports import StepReport

Small = Callable[..., Any]
LOSS = "tidybert.pretraining.pretraining_objective.loss_parts"


def weights_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def at_step(step: int, action: Callable[[], None]) -> Reporter:
    def report(done: StepReport) -> None:
        if done.step == step:
            action()

    return Reporter(step=report)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_learns_words_and_pairs(small: Small, tmp_path: Path) -> None:
    result = small(
        tmp_path / "run",
        max_steps=200,
        tokens_per_step=512,
        micro_batch=512,
        save_steps=100,
        eval_steps=100,
        eval_tokens=4096,
        dropout=0.0,
    )

    metrics = result.metrics
    assert metrics["mlm_accuracy"] > 0.45
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["mlm_loss"]))
    assert metrics["loss"] == pytest.approx(metrics["mlm_loss"] + metrics["nsp_loss"])
    # Each document has one animal and one colour, so a random next one can be told apart.
    assert metrics["nsp_accuracy"] > 0.57
    assert result.num_tokens == pytest.approx(200 * 500, rel=0.05)


def test_the_run_is_a_model_with_its_heads(small: Small, tmp_path: Path) -> None:
    import transformers

    run = tmp_path / "run"
    small(run)

    theirs = transformers.BertForPreTraining.from_pretrained(run)
    ours = read_tensors(run)
    assert theirs.config.hidden_dropout_prob == 0.1
    torch.testing.assert_close(theirs.cls.predictions.bias.detach(), ours["cls.predictions.bias"])
    logged = lines_of(run / "metrics.jsonl")
    steps = [line for line in logged if "learning_rate" in line]
    assert [line["step"] for line in steps] == list(range(1, 13))
    assert steps[3]["loss"] == pytest.approx(steps[3]["mlm_loss"] + steps[3]["nsp_loss"])
    assert [line["step"] for line in logged if "eval_loss" in line] == [6, 12]
    assert json.loads((run / "arguments.json").read_text())["masked_lm_prob"] == 0.3


def test_the_loss_is_transformers(
    corpus: Path,
    tiny_config: Callable[..., Any],
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    config = tiny_config()
    theirs = reference(config, "BertForPreTraining")
    ours = copy_weights(theirs, BertForPreTraining(config))
    instances = PretrainingInstances(TokenCorpus(corpus), InstanceOptions(max_seq_length=32))
    places, _ = instances.take(Position(), 6)
    batch = masked_rows(instances.build(places))
    shape = (6, 32)
    ids, mask = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    types, labels = torch.zeros_like(ids), torch.full(shape, -100)
    flat = torch.full((batch.rows.num_tokens,), -100)
    flat[batch.masked_lm_positions] = batch.masked_lm_labels
    bounds = batch.rows.cu_seqlens.tolist()
    for row, (start, end) in enumerate(pairwise(bounds)):
        ids[row, : end - start] = batch.rows.input_ids[start:end]
        types[row, : end - start] = batch.rows.token_type_ids[start:end]
        labels[row, : end - start] = flat[start:end]
        mask[row, : end - start] = 1

    parts = loss_parts(ours, batch)
    expected = theirs(
        ids, mask, types, labels=labels, next_sentence_label=batch.next_sentence_label
    )

    mine = parts["mlm"].total / len(batch.masked_lm_labels) + parts["nsp"].total / 6
    torch.testing.assert_close(mine, expected.loss, atol=1e-5, rtol=0)
    predicted = expected.prediction_logits.argmax(-1)[labels != -100]
    assert parts["mlm"].correct == (predicted == labels[labels != -100]).sum()
    assert functional.cross_entropy(
        expected.seq_relationship_logits, batch.next_sentence_label
    ).item() == pytest.approx(parts["nsp"].total.item() / 6, abs=1e-5)


def test_a_stopped_run_ends_with_the_same_bits(small: Small, tmp_path: Path) -> None:
    given = {"long_share": 0.5, "long_seq_length": 31}
    expected = small(tmp_path / "whole", **given)

    def logged(run: Path) -> list[dict[str, Any]]:
        lines = lines_of(run / "metrics.jsonl")
        return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]

    for step in (3, 6, 11):
        run = tmp_path / f"stopped at {step}"
        stop = at_step(step, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(TrainingInterrupted) as caught:
            small(run, **given, reporter=stop)
        assert caught.value.exit_status == 128 + signal.SIGTERM
        result = small(run, **given, resume=True)

        assert weights_of(run) == weights_of(tmp_path / "whole")
        assert result.num_tokens == expected.num_tokens
        assert logged(run) == logged(tmp_path / "whole")


def test_a_stopped_run_with_muon_ends_with_the_same_bits(
    small: Small, tmp_path: Path, device: str
) -> None:
    given = {"optimizer": "muon", "device": device, "deterministic": True}
    small(tmp_path / "whole", **given)

    stop = at_step(5, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        small(tmp_path / "run", reporter=stop, **given)
    small(tmp_path / "run", resume=True, **given)

    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")


def stopped_at(step: int, small: Small, run: Path, **given: Any) -> None:
    stop = at_step(step, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        small(run, reporter=stop, **given)


def test_settings_of_memory_may_change_on_the_way(small: Small, tmp_path: Path) -> None:
    told: list[str] = []
    memory = {"micro_batch": 200, "deterministic": True, "checkpoint_activations": True}
    intervals = {"save_steps": 7, "eval_steps": 3}
    small(tmp_path / "whole", dropout=0.0)
    stopped_at(5, small, tmp_path / "run", dropout=0.0)

    note = Reporter(note=told.append)
    given = {"dropout": 0.0, "resume": True, "reporter": note}
    small(tmp_path / "run", **given, **memory, **intervals)

    assert "resuming after step 5 of 12" in told
    assert "micro_batch: 96 before, 200 now" in told
    arguments = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert arguments["micro_batch"] == 200
    assert arguments["deterministic"]
    assert arguments["record"]["changed_on_the_way"][0]["step"] == 5
    assert arguments["record"]["changed_on_the_way"][0]["micro_batch"] == [96, 200]
    # Only rounding differs.
    ours, whole = (read_tensors(tmp_path / name) for name in ("run", "whole"))
    for name, tensor in whole.items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-4, rtol=1e-3)


def test_a_resume_names_what_must_not_change(small: Small, corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped_at(5, small, run, schedule="linear")

    with pytest.raises(TrainingError) as caught:
        small(run, resume=True, schedule="linear", max_steps=20, seed=7, weight_decay=0.5)

    lines = sorted(str(caught.value).splitlines()[1:])
    assert lines == [
        "  max_steps: 12 before, 20 now",
        "  seed: 42 before, 7 now",
        "  weight_decay: 0.01 before, 0.5 now",
    ]
    other = tmp_path / "other"
    shutil.copytree(corpus, other)
    manifest = json.loads((other / "corpus.json").read_text())
    manifest["sources"][0]["file"] = "moved.txt"
    (other / "corpus.json").write_text(json.dumps(manifest))
    # The same shards in another place are the same corpus.
    small(run, resume=True, schedule="linear", data=other)


@pytest.fixture
def damaged(corpus: Path, tmp_path: Path) -> Path:
    """The corpus with one token overwritten."""
    copy = tmp_path / "damaged"
    shutil.copytree(corpus, copy)
    path = copy / "train-00000.tokens"
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    return copy


def test_a_damaged_corpus_is_found_before_the_first_step(
    damaged: Path, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    steps = Reporter(note=told.append, step=lambda _done: told.append("a step"))
    monkeypatch.setattr("tidybert.pretraining.pretraining_run._NOTE_SECONDS", 0.0)

    with pytest.raises(DataError, match=r"train-00000\.tokens: its sha256 is"):
        small(tmp_path / "run", data=damaged, reporter=steps)

    assert "a step" not in told
    assert not (tmp_path / "run").exists()
    small(tmp_path / "run", data=damaged, reporter=steps, verify=False, max_steps=1)
    assert not any("sha256" in line for line in told)
    small(tmp_path / "other", reporter=steps, max_steps=1)
    shown = "comparing the corpus with its sha256: 0.0 of 0.0 GB (verify=False leaves it out)"
    assert shown in told


def test_a_flipped_byte_never_makes_an_endless_run(
    corpus: Path, small: Small, tmp_path: Path
) -> None:
    """Before the bounds were checked, cutting documents went round for ever."""
    copy = tmp_path / "damaged"
    shutil.copytree(corpus, copy)
    for suffix, message in (("documents", "do not rise"), ("tokens", "has the id")):
        path = copy / f"train-00000.{suffix}"
        content = path.read_bytes()
        path.write_bytes(content[:8] + b"\xff" * (len(content) - 8))
        with pytest.raises(DataError, match=message):
            small(tmp_path / suffix, data=copy, verify=False)
        path.write_bytes(content)


def test_a_corpus_cased_unlike_the_model_is_refused(
    tiny_model: Path, corpus: Path, small: Small, tmp_path: Path
) -> None:
    cased = tmp_path / "cased"
    shutil.copytree(tiny_model, cased)
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    BertTokenizer(tokenizer.vocabulary.tokens, do_lower_case=False).save(cased)

    with pytest.raises(UsageError, match=r"other tokenizers \(do_lower_case is False .*vocab"):
        small(tmp_path / "run", model=cased)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_mixed_precision_learns_alike(
    optimizer: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_module, "_trial", lambda: 1.6)
    monkeypatch.setattr(precision_module, "bfloat16_units", lambda: None)
    given = {"optimizer": optimizer, "dropout": 0.0}
    for precision in ("float32", "bfloat16"):
        notes: list[str] = []
        reporter = Reporter(note=notes.append)
        small(tmp_path / precision, precision=precision, reporter=reporter, **given)
        assert any("1.6 times as long" in each for each in notes) == (precision == "bfloat16")

    a, b = (
        [line["loss"] for line in lines_of(tmp_path / name / "metrics.jsonl") if "loss" in line]
        for name in ("float32", "bfloat16")
    )
    assert a != b
    assert a == pytest.approx(b, rel=0.02)
    assert {each.dtype for each in read_tensors(tmp_path / "bfloat16").values()} == {torch.float32}


def test_the_size_of_micro_batches_and_kept_activations_change_only_rounding(
    small: Small, tmp_path: Path
) -> None:
    small(tmp_path / "a", dropout=0.0, max_steps=4)
    small(tmp_path / "b", dropout=0.0, max_steps=4, micro_batch=10_000)
    small(tmp_path / "c", dropout=0.0, max_steps=4, checkpoint_activations=True)

    a, b, c = (
        [line["loss"] for line in lines_of(tmp_path / name / "metrics.jsonl") if "loss" in line]
        for name in "abc"
    )
    assert a == pytest.approx(b, abs=1e-5)
    assert a == pytest.approx(c, abs=1e-5)


def test_dropped_activations_are_dropped_again_alike(small: Small, tmp_path: Path) -> None:
    small(tmp_path / "a", dropout=0.3, max_steps=3)
    small(tmp_path / "b", dropout=0.3, max_steps=3, checkpoint_activations=True)

    a, b = (read_tensors(tmp_path / name) for name in "ab")
    for name, tensor in a.items():
        torch.testing.assert_close(tensor, b[name], atol=1e-5, rtol=1e-4)


def test_a_step_has_as_many_whole_sequences_as_fit(corpus: Path) -> None:
    instances = PretrainingInstances(TokenCorpus(corpus), InstanceOptions(max_seq_length=32))
    stream = InstanceStream(instances, tokens_per_step=300, micro_batch_tokens=64)
    position = Position()
    seen = 0
    for _ in range(5):
        taken = stream.take(position)
        assert 300 - 32 < taken.num_tokens <= 300
        assert sum(batch.rows.num_tokens for batch in taken.batches) == taken.num_tokens
        assert max(batch.rows.num_tokens for batch in taken.batches) <= 64
        masked = sum(len(batch.masked_lm_labels) for batch in taken.batches)
        assert taken.counts == {"mlm": masked, "nsp": taken.num_sequences}
        seen += taken.num_sequences
        position = taken.position
    places, after = instances.take(Position(), seen)
    assert after == position
    assert len(places) == seen


@pytest.mark.parametrize("num_processes", [2, 3])
def test_processes_share_the_same_step(corpus: Path, num_processes: int) -> None:
    instances = PretrainingInstances(TokenCorpus(corpus), InstanceOptions(max_seq_length=32))
    whole = InstanceStream(instances, 300, 64).take(Position())

    shares = [
        InstanceStream(instances, 300, 64, rank, num_processes).take(Position())
        for rank in range(num_processes)
    ]

    assert {share.num_tokens for share in shares} == {whole.num_tokens}
    assert {
        name: sum(share.counts[name] for share in shares) for name in whole.counts
    } == whole.counts
    assert all(share.position == whole.position for share in shares)

    def words(parts: list[Any]) -> list[int]:
        batches = [batch for part in parts for batch in part.batches]
        labels = [int(each) for batch in batches for each in batch.masked_lm_labels]
        return sorted(each for each in labels if each != -100)

    assert words(shares) == words([whole])
    # A sharded model gathers its weights for each batch, for which all must ask equally often.
    assert len({len(share.batches) for share in shares}) == 1


class BadLoss:
    """Stands for the loss: it is not a number in the steps named."""

    def __init__(self, steps: set[int]) -> None:
        self.steps = steps
        self.step = 0

    def report(self, done: StepReport) -> None:
        self.step = done.step

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        parts = loss_parts(model, batch)
        if self.step + 1 in self.steps and model.training:
            parts["mlm"] = replace(parts["mlm"], total=parts["mlm"].total * math.nan)
        return parts


def test_steps_that_are_not_finite_update_nothing_and_are_counted(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = BadLoss({5, 8})
    monkeypatch.setattr(LOSS, bad)
    updated = []

    def report(done: StepReport) -> None:
        bad.report(done)
        updated.append(done.updated)

    result = small(tmp_path / "run", reporter=Reporter(step=report))

    assert result.num_bad_steps == 2
    assert [number for number, each in enumerate(updated, start=1) if not each] == [5, 8]
    noted = lines_of(tmp_path / "run" / "bad_steps.jsonl")
    assert [line["step"] for line in noted] == [5, 8]
    assert len(noted[0]["position"]) == 4


def test_steps_read_late_are_the_same_steps(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CUDA a step is reported when the next one is launched."""
    runs = tmp_path / "at once", tmp_path / "late"
    for late, run in enumerate(runs):
        monkeypatch.setattr("tidybert.training.loop.steps_late", lambda _device, late=late: late)
        # A loss sees the step that was reported last.
        bad = BadLoss({5 - late, 8 - late})
        monkeypatch.setattr(LOSS, bad)
        result = small(
            run,
            reporter=Reporter(step=bad.report),
            eval_steps=99,
            save_steps=99,
            logging_steps=1,
        )
        assert result.num_bad_steps == 2

    at_once, late_ones = (
        [
            {name: each for name, each in line.items() if name != "tokens_per_second"}
            for line in lines_of(run / "metrics.jsonl")
        ]
        for run in runs
    )
    assert at_once == late_ones
    noted = lines_of(runs[1] / "bad_steps.jsonl")
    assert [line["step"] for line in noted] == [5, 8]


def test_a_bad_step_that_is_done_again_is_noted_once(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, given = tmp_path / "run", {"save_steps": 6, "save_total_limit": 2}
    bad = BadLoss({5, 8})
    monkeypatch.setattr(LOSS, bad)

    def report(done: StepReport) -> None:
        bad.report(done)
        if done.step == 9:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(TrainingInterrupted):
        small(run, reporter=Reporter(step=report), **given)
    # As if it had been killed before it could write this one.
    shutil.rmtree(run / "checkpoints" / "step-9")
    result = small(run, reporter=Reporter(step=bad.report), resume=True, **given)

    assert [line["step"] for line in lines_of(run / "bad_steps.jsonl")] == [5, 8]
    assert result.num_bad_steps == 2


@pytest.mark.parametrize("late", [0, 1])
def test_too_many_bad_steps_in_a_row_stop_the_run(
    late: int, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CUDA the next step is launched by then; it changes nothing either."""
    launched = 0

    def bad_from_the_fifth_step(model: nn.Module, batch: Any) -> Any:
        parts = loss_parts(model, batch)
        if launched >= 5 and model.training:
            parts["mlm"] = replace(parts["mlm"], total=parts["mlm"].total * math.nan)
        return parts

    def count(*given: Any, **named: Any) -> torch.Generator:
        nonlocal launched
        launched += 1
        return begin_step(*given, **named)

    monkeypatch.setattr(
        "tidybert.pretraining.pretraining_objective.loss_parts", bad_from_the_fifth_step
    )
    monkeypatch.setattr("tidybert.training.loop.begin_step", count)
    monkeypatch.setattr("tidybert.training.loop.steps_late", lambda _device: late)

    with pytest.raises(TrainingError, match="in 3 steps in a row: it began at step 5 of 12"):
        small(tmp_path / "run", max_bad_steps=3, eval_steps=99, save_steps=99)

    assert launched == 7 + late


def test_a_model_is_trained_further_with_the_heads_it_has(
    small: Small, corpus: Path, tmp_path: Path
) -> None:
    notes: list[str] = []
    small(tmp_path / "first", max_steps=2)
    small(
        tmp_path / "second",
        model=tmp_path / "first",
        max_steps=1,
        reporter=Reporter(note=notes.append),
    )

    assert "new: none; ignored: none" in notes[0]


def test_the_masked_language_model_alone_needs_no_pairs(small: Small, tmp_path: Path) -> None:
    result = small(
        tmp_path / "run", instances=InstanceOptions(objective="mlm", max_seq_length=32), max_steps=3
    )

    assert {"loss", "perplexity", "mlm_loss", "mlm_accuracy"} <= set(result.metrics)
    assert not any(name.startswith("nsp") for name in result.metrics)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    assert ModelDirectory(tmp_path / "run").tokenizer.special_tokens_in_text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "minilm"}, "different vocabularies; build the corpus with vocab='minilm'"),
        ({"long_share": 0.5}, "long_seq_length is 512, but the model has positions for 32"),
        ({"tokens_per_step": 20}, "tokens_per_step is 20; expected at least 32"),
        ({"recipe": "slow"}, "recipe is slow; expected bert or fast"),
        ({"learning_rate": -1.0}, "learning_rate is -1"),
        ({"schedule": "wave"}, "schedule is wave"),
        ({"sharding": "zero"}, "sharding is zero; expected none or full"),
        ({"micro_batch": "much"}, "micro_batch is much; expected a number above 0"),
        (
            {"micro_batch": 0},
            "micro_batch is 0; expected a number above 0, or auto",
        ),
        ({"micro_batch": "20"}, "micro_batch is 20; expected at least 32"),
        ({"optimizer": "sgd"}, "optimizer is sgd; expected adamw or muon"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_written(
    given: dict[str, Any],
    message: str,
    small: Small,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if given.get("model") == "minilm":
        request.getfixturevalue("minilm_directory")
    with pytest.raises(UsageError, match=message):
        small(tmp_path / "run", **given)

    assert not (tmp_path / "run").exists()


def test_the_last_checkpoints_stay(small: Small, tmp_path: Path) -> None:
    small(tmp_path / "run", save_steps=3, save_total_limit=2, keep_checkpoints=True)

    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["step-12", "step-9"]


def test_schedules() -> None:
    linear = PretrainingArguments(max_steps=100, learning_rate=1.0, warmup_steps=9)
    level = replace(linear, schedule="trapezoid")

    assert [rate_at(step, linear) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert rate_at(99, linear) == pytest.approx(1 / 91)
    assert [rate_at(step, level) for step in (9, 50, 80)] == pytest.approx([1.0, 1.0, 1.0])
    assert [rate_at(step, level) for step in (90, 99)] == pytest.approx([0.5, 0.05])
    # A warm-up of ten thousand steps would be the whole of a short run.
    assert rate_at(10, PretrainingArguments(max_steps=100, learning_rate=1.0)) == 1.0


def test_the_fast_recipe_takes_larger_steps_on_cuda() -> None:
    fast = PretrainingArguments(recipe="fast")

    tokens = [fast.for_device(kind).tokens_per_step for kind in ("cpu", "cuda", "mps")]
    assert tokens == [4096, 131_072, 4096]
    assert fast.for_device("cuda").learning_rate == 2e-3
    given = PretrainingArguments(recipe="fast", tokens_per_step=512)
    assert given.for_device("cuda").tokens_per_step == 512
    assert PretrainingArguments().for_device("cuda").tokens_per_step == 32_768


def test_a_run_of_an_earlier_version_goes_on_where_it_did_what_is_done_now(
    small: Small, tmp_path: Path
) -> None:
    def record(run: Path, **earlier: Any) -> None:
        for state in run.glob("checkpoints/*/training_state.json"):
            content = json.loads(state.read_text())
            content["course"]["settings"] |= earlier
            del content["checksum"]
            state.write_text(json.dumps({**content, "checksum": json_checksum(content)}))

    small(tmp_path / "whole")
    for name in ("run", "other"):
        stopped_at(5, small, tmp_path / name)
    record(tmp_path / "run", ramp_share=0.0, decay_share=0.2, span=False, span_length_p=0.3)
    record(tmp_path / "other", ramp_share=0.5, decay_share=0.2)

    small(tmp_path / "run", resume=True)

    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")
    with pytest.raises(TrainingError, match=r"\n  ramp_share: 0.5 before, not given now$"):
        small(tmp_path / "other", resume=True)


def test_the_share_of_the_peak_is_logged_where_the_peak_is_known(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A CPU's peak is not known.
    small(tmp_path / "cpu", max_steps=1)
    assert not any("mfu" in line for line in lines_of(tmp_path / "cpu" / "metrics.jsonl"))
    monkeypatch.setattr("tidybert.pretraining.pretraining_run.peak_flops", lambda _device: 1e12)
    monkeypatch.setattr(
        "tidybert.pretraining.pretraining_run.flops_per_token", lambda _, length, __: length
    )
    reports: list[StepReport] = []
    notes: list[str] = []

    result = small(
        tmp_path / "run",
        max_steps=4,
        long_share=0.5,
        long_seq_length=31,
        reporter=Reporter(note=notes.append, step=reports.append),
    )

    lengths = [32, 32, 31, 31]
    for count, (done, length) in enumerate(zip(reports, lengths, strict=True), start=1):
        rate = sum(each.num_tokens for each in reports[:count]) / sum(
            each.seconds for each in reports[:count]
        )
        assert done.figures["mfu"] == pytest.approx(rate * length / 1e12)
    assert [line["mfu"] for line in lines_of(tmp_path / "run" / "metrics.jsonl") if "mfu" in line]
    share = 31.5 * result.num_tokens / result.seconds / 1e12
    assert any(note.startswith(f"{share:.1%} of the peak of 1 x ") for note in notes)


def test_an_error_of_the_background_writer_is_not_lost(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise TrainingError("the disk is full")

    monkeypatch.setattr("tidybert.training.runs.run_record.write_checkpoint", full)

    with pytest.raises(TrainingError, match="the disk is full"):
        small(tmp_path / "run")


CHECKPOINTED = {"checkpoint_activations": True}
SMALLER = r"micro_batch=\d+"


@pytest.mark.parametrize(
    ("place", "given", "advice"),
    [
        (LOSS, {}, f"try {SMALLER}, or checkpoint_activations: only rounding"),
        ("torch.nn.utils.get_total_norm", CHECKPOINTED, f"try {SMALLER}: only rounding"),
        (
            "tidybert.pretraining.pretraining_objective.HeldOut.measure",
            CHECKPOINTED,
            f"try {SMALLER}",
        ),
        (LOSS, {**CHECKPOINTED, "micro_batch": 64, "compile": True}, "try a smaller model"),
    ],
)
def test_too_little_memory_names_a_smaller_micro_batch(
    place: str,
    given: dict[str, Any],
    advice: str,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(place, full)

    with pytest.raises(TrainingError, match=rf"too small for [\d,]+ tokens at once; {advice}"):
        small(tmp_path / "run", **given)


def test_one_of_several_processes_refuses_what_names_no_device(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Processes, "wait", lambda self: None)

    with pytest.raises(UsageError, match="device='gpu': expected auto, cpu, cuda"):
        small(tmp_path / "run", processes=Processes(0, 2), device="gpu")
