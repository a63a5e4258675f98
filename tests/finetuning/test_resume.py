"""After a signal, a kill at any moment or damage a run goes on to the bits of one never stopped."""

import json
import math
import multiprocessing
import runpy
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.errors import TrainingError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.loading import OpenedModel
from tidybert.modeling.kernels import linear as linear_module
from tidybert.modeling.kernels.transfer import steps_late
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import Classification
from tidybert.tasks.registry import task_flags
from tidybert.tasks.task_options import ClassOptions
from tidybert.training import precision
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.optimization import learning_rate_at
from tidybert.training.reports import StepReport
from tidybert.training.runs.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

Examples = Callable[..., list[TextExample]]
Arguments = Callable[..., TrainingArguments]
NAMES = ("animal", "colour")


def weights_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def at_step(step: int, action: Callable[[], None]) -> Reporter:
    def report(done: StepReport) -> None:
        if done.step == step:
            action()

    return Reporter(step=report)


def test_more_steps_and_another_rate_from_here_on(
    toy: Callable[..., FinetunedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run that was told so from the beginning, also in the words that no example has."""
    before = {"max_steps": 8, "weight_decay": 0.5}
    after = {"max_steps": 14, "learning_rate": 1e-3, "weight_decay": 0.5}
    stop = at_step(6, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        toy(run=tmp_path / "run", reporter=stop, dev=None, **before)
    with pytest.raises(TrainingError, match="change changes them from here on"):
        toy(run=tmp_path / "run", resume=True, dev=None, **after)
    with pytest.raises(TrainingError, match=r"cannot change.*\n  train_batch_size: 16 before, 8"):
        toy(run=tmp_path / "run", resume=True, change=True, dev=None, train_batch_size=8, **after)
    stop = at_step(10, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        toy(run=tmp_path / "run", resume=True, change=True, dev=None, reporter=stop, **after)
    again = {**after, "learning_rate": 5e-2}
    toy(run=tmp_path / "run", resume=True, change=True, dev=None, **again)

    def told(step: int, num_steps: int, arguments: TrainingArguments) -> float:
        if step < 6:
            return learning_rate_at(step, 8, replace(arguments, learning_rate=1e-2))
        rate = 1e-3 if step < 10 else 5e-2
        return learning_rate_at(step, num_steps, replace(arguments, learning_rate=rate))

    for module in ("fine_tuning", "optimization"):
        monkeypatch.setattr(f"tidybert.training.{module}.learning_rate_at", told)
    toy(run=tmp_path / "told", dev=None, **again)

    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "told")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_after_a_signal_the_run_goes_on_to_the_same_bits(
    number: signal.Signals,
    status: int,
    toy: Callable[..., FinetunedModel],
    tmp_path: Path,
    device: str,
) -> None:
    given = {"device": device, "deterministic": True}
    toy(run=tmp_path / "whole", **given)
    # On CUDA the sixth step is reported when the seventh is launched.
    stop = 6 + steps_late(torch.device(device))
    interrupt = at_step(6, lambda: signal.raise_signal(number))
    with pytest.raises(TrainingInterrupted) as stopped:
        toy(run=tmp_path / "cut", reporter=interrupt, **given)
    assert stopped.value.exit_status == status
    assert not is_finished(tmp_path / "cut")

    notes: list[str] = []
    reporter = Reporter(note=notes.append)
    resumed = toy(run=tmp_path / "cut", resume=True, reporter=reporter, **given)

    assert resumed.result.resumed_from == stop
    assert f"resuming after step {stop} of 16" in notes
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")


@pytest.mark.parametrize("names", [("0.0", "1.0"), ("False", "True")])
def test_a_run_goes_on_with_the_labels_that_it_began_with(
    names: tuple[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    """Earlier versions took them as they are written in the file."""
    run, rows = tmp_path / "run", [f"the {'cat' if at % 3 else 'red'} {at}" for at in range(12)]
    file = tmp_path / "a.csv"
    lines = [f"{text},{names[at % 3 == 0]}\n" for at, text in enumerate(rows)]
    file.write_text("text,label\n" + "".join(lines))
    arguments = TrainingArguments(
        max_steps=4, train_batch_size=4, save_steps=2, head_start="random"
    )
    begun: dict[str, Any] = {"arguments": arguments, "max_seq_length": 16, "out": run}
    examples = [TextExample(text, None, names[at % 3 == 0], at + 2) for at, text in enumerate(rows)]
    stop = at_step(2, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        run_finetuning(FinetuningJob(Classification(names), tiny_model, examples, **begun), stop)

    job = FinetuningJob(
        "classify", tiny_model, file, **begun, resume=True, task_options=task_flags()()
    )
    found = run_finetuning(job)

    assert found.result.resumed_from == 2
    assert found.task.label_names == names


def test_a_run_in_bfloat16_goes_on_so_on_a_processor_without_it(
    toy: Callable[..., FinetunedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_LEAST_WIDTH", {"AMX": 0, None: math.inf})
    monkeypatch.setattr(precision, "_trial", lambda: 1.6)
    monkeypatch.setattr(precision, "bfloat16_units", lambda: "AMX")
    toy(run=tmp_path / "whole")
    stop = at_step(6, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        toy(run=tmp_path / "cut", reporter=stop)
    monkeypatch.setattr(precision, "bfloat16_units", lambda: None)
    with pytest.raises(TrainingError, match="precision: auto before, float32 now"):
        toy(run=tmp_path / "cut", resume=True, precision="float32")
    notes: list[str] = []

    toy(run=tmp_path / "cut", resume=True, reporter=Reporter(note=notes.append))

    assert "precision: bfloat16, as the run began; a new run here takes float32" in notes
    assert any("1.6 times as long" in each for each in notes)
    record = json.loads((tmp_path / "cut" / "arguments.json").read_text())["record"]
    assert record["precision"] == "bfloat16"
    assert OpenedModel(tmp_path / "cut", device="cpu").precision == "float32"
    monkeypatch.setattr(precision, "bfloat16_units", lambda: "AMX")
    assert OpenedModel(tmp_path / "cut", device="cpu").precision == "bfloat16"
    # The last evaluations were in float32, on the way to the same weights.
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")


@pytest.mark.skipif(linear_module._ONEDNN is None, reason="PyTorch has no oneDNN here")
@pytest.mark.parametrize("began_with", ["onednn", "default"])
def test_a_run_goes_on_with_the_products_that_it_began_with(
    began_with: str,
    toy: Callable[..., FinetunedModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_module, "_products", linear_module.products())
    other = {"onednn": "default", "default": "onednn"}[began_with]
    monkeypatch.setattr(precision, "faster_products", lambda: began_with)
    toy(run=tmp_path / "whole")
    stop = at_step(6, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        toy(run=tmp_path / "cut", reporter=stop)
    # On another processor, in another process.
    monkeypatch.setattr(precision, "faster_products", lambda: other)
    linear_module.use_products(other)

    toy(run=tmp_path / "cut", resume=True)

    assert linear_module.products() == began_with
    record = json.loads((tmp_path / "cut" / "arguments.json").read_text())["record"]
    assert record["products"] == began_with
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")


@pytest.mark.parametrize(("is_amd", "expected"), [(True, "onednn"), (False, "default")])
def test_a_run_of_an_earlier_version_goes_on_with_the_products_of_its_vendor(
    is_amd: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []
    monkeypatch.setattr(precision, "is_amd", lambda: is_amd)
    monkeypatch.setattr(precision, "use_products", chosen.append)
    (tmp_path / "arguments.json").write_text('{"record": {"precision": "float32"}}')

    assert precision.go_on_as_begun(tmp_path, True) == "float32"
    assert precision.go_on_as_begun(tmp_path, False) is None
    assert chosen == [expected, precision.faster_products()]


def without_last(examples: list[TextExample]) -> list[TextExample]:
    return examples[:-1]


@pytest.mark.parametrize(
    "change",
    [
        "learning_rate",
        "train",
        "label",
        "order",
        "dev",
        "moved",
        "weights",
        "classes",
        "model",
        "class_weight",
    ],
)
def test_with_other_arguments_data_or_weights_it_does_not_go_on(
    change: str,
    toy: Callable[..., FinetunedModel],
    toy_examples: Examples,
    tiny_run: Path,
    tmp_path: Path,
) -> None:
    def stop() -> None:
        signal.raise_signal(signal.SIGINT)

    run = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        toy(run=run, task_options=ClassOptions(), reporter=at_step(2, stop))
    before = (run / "arguments.json").read_bytes()
    train, dev = toy_examples(60), toy_examples(20, seed=1)
    relabelled = [replace(train[0], label=NAMES[train[0].label == "animal"]), *train[1:]]
    given: dict[str, Any] = {
        "learning_rate": {"learning_rate": 1e-3},
        "train": {"train": without_last(train)},
        "label": {"train": relabelled},
        "order": {"train": train[::-1]},
        "dev": {"dev": without_last(dev)},
        "moved": {"train": without_last(train), "dev": [train[-1], *dev]},
        "weights": {"example_weights": [2.0] + [1.0] * 59},
        "classes": {"task": Classification(NAMES, {"animal": 1.0, "colour": 2.0})},
        "model": {"model": tiny_run},
        "class_weight": {"task_options": ClassOptions(class_weight="balanced")},
    }[change]
    same: dict[str, Any] = {"task_options": ClassOptions()}

    named = {
        "learning_rate": "learning_rate: .* before, 0.001 now",
        "model": "the weights to begin with: not the same",
        "class_weight": "class_weight: not given before, balanced now",
    }.get(change, "the examples as the model reads them: not the same")
    with pytest.raises(TrainingError, match=f"other arguments or data.*\n  {named}"):
        toy(run=run, resume=True, **same | given)

    assert (run / "arguments.json").read_bytes() == before
    assert toy(run=run, resume=True, **same).result.resumed_from == 2


def test_a_run_without_a_checkpoint_yet_is_resumed_from_its_beginning(
    toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        toy(run=tmp_path / "run", reporter=at_step(2, kill))

    assert toy(run=tmp_path / "run", resume=True).result.resumed_from == 0


def test_a_kill_between_the_models_files_costs_nothing(
    toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    toy(run=run, dev=None, keep_checkpoints=True)
    expected = weights_of(run)
    # tidybert.json is in place, the weights are not.
    (run / "model.safetensors").unlink()
    assert not is_finished(run)

    resumed = toy(run=run, dev=None, resume=True)

    assert resumed.result.num_examples == 0
    assert weights_of(run) == expected
    assert is_finished(run)


# Fine-tunes as ``toy`` does, in a process of its own; it dies while writing step-N if told so.
PROGRAM = """
import os, signal, time
from pathlib import Path
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import Classification
from tidybert.training.runs import run_checkpoints as state
from tidybert.training.training_arguments import TrainingArguments

write = state.write_tensors

def write_half(path, tensors):
    written = write(path, tensors)
    if given["die_writing"] and given["die_writing"] in str(path) and "optimizer" in path.name:
        written.write_bytes(written.read_bytes()[:1000])
        os.kill(os.getpid(), signal.SIGKILL)
    return written

state.write_tensors = write_half
job = FinetuningJob(
    Classification(["animal", "colour"]),
    given["model"],
    [TextExample(*each) for each in given["train"]],
    [TextExample(*each) for each in given["dev"]],
    TrainingArguments(**given["arguments"]),
    max_seq_length=16,
    out=Path(given["run"]),
)
# Slow enough for a kill from outside to come in the middle.
run_finetuning(job, Reporter(step=lambda done: time.sleep(given["pause"])))
"""


@pytest.fixture
def start_process(
    begin: Callable[..., Any],
    tiny_model: Path,
    toy_examples: Examples,
    toy_arguments: Arguments,
    tmp_path: Path,
) -> Callable[..., BaseProcess]:
    """The fork server of ``begin`` has loaded torch."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def as_list(examples: list[TextExample]) -> list[Any]:
        return [[one.text, one.text_pair, one.label, one.row] for one in examples]

    def start(run: Path, die_writing: str, pause: float, **arguments: Any) -> Any:
        given = {
            "model": str(tiny_model),
            "train": as_list(toy_examples(60)),
            "dev": as_list(toy_examples(20, seed=1)),
            "arguments": asdict(toy_arguments(**arguments)),
            "run": str(run),
            "die_writing": die_writing,
            "pause": pause,
        }
        context = multiprocessing.get_context("forkserver")
        process = context.Process(
            target=runpy.run_path, args=(str(program), {"given": given}), daemon=True
        )
        process.start()
        return process

    return start


def test_a_run_killed_in_mid_epoch_goes_on_to_the_same_bits(
    start_process: Callable[..., Any], toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    toy(run=tmp_path / "whole", save_steps=3)
    run = tmp_path / "killed"

    process = start_process(run, "", 0.2, save_steps=3)
    while process.is_alive() and not (run / "checkpoints" / "step-6").exists():
        time.sleep(0.005)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL

    resumed = toy(run=run, save_steps=3, resume=True)

    assert 6 <= resumed.result.resumed_from < 16
    assert weights_of(run) == weights_of(tmp_path / "whole")
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    for ours, theirs in zip(steps, map(json.loads, expected), strict=True):
        assert {**ours, "tokens_per_second": 0} == {**theirs, "tokens_per_second": 0}


def test_a_run_killed_while_it_writes_goes_on_from_the_checkpoint_before(
    start_process: Callable[..., Any], toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    toy(run=tmp_path / "whole", save_steps=3)
    run = tmp_path / "killed"

    process = start_process(run, "step-9", 0, save_steps=3)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    there = {path.name for path in (run / "checkpoints").iterdir()}
    assert {"step-6", "best"} < there
    assert "step-9" not in there

    resumed = toy(run=run, save_steps=3, resume=True, keep_checkpoints=True)
    assert resumed.result.resumed_from == 6
    assert weights_of(run) == weights_of(tmp_path / "whole")
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-16"}


def test_damage_in_the_last_checkpoint_is_said(
    toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    toy(run=run, save_steps=3, save_total_limit=2, dev=None, keep_checkpoints=True)
    expected = weights_of(run)
    (run / "tidybert.json").unlink()
    weights = run / "checkpoints" / "step-16" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    notes: list[str] = []

    toy(
        run=run,
        save_steps=3,
        save_total_limit=2,
        dev=None,
        resume=True,
        reporter=Reporter(note=notes.append),
    )

    assert any("step-16 cannot be read and is passed over" in line for line in notes)
    assert "resuming after step 15 of 16" in notes
    assert weights_of(run) == expected
