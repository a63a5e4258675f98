"""Pre-training in processes of its own: killed at any time, and shared by two under torchrun."""

import contextlib
import io
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.cli.main import run as run_here

FLAGS = {
    "recipe": "fast",
    "max-steps": 12,
    "tokens-per-step": 256,
    "micro-batch": 96,
    "max-seq-length": 32,
    "eval-steps": 6,
    "eval-tokens": 512,
    "save-steps": 2,
    "learning-rate": 0.01,
    "logging-steps": 1,
    "device": "cpu",
}


def command(model: Path, corpus: Path, run: Path, *more: str, **changes: Any) -> list[str]:
    flags = {**FLAGS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    return ["pretrain", str(model), "--data", str(corpus), "--out", str(run), *words, *more]


def shell(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which has loaded torch already."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run_here(arguments)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def torchrun(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in two processes that torchrun begins."""
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    start += ["--master-port", str(free_port()), "-m", "tidybert"]
    return subprocess.run(
        [*start, *arguments], capture_output=True, text=True, check=False, timeout=200
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def as_rank(rank: int, world_size: int, port: int) -> dict[str, str]:
    """The environment that torchrun gives a process of ``world_size``."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
    }


@pytest.fixture
def two_processes(begin: Callable[..., Any]) -> Callable[[list[str]], str]:
    """Runs a command in two processes, as torchrun would; gives their messages."""

    def run(arguments: list[str]) -> str:
        port = free_port()
        both = [
            begin(*arguments, stderr=subprocess.PIPE, **as_rank(rank, 2, port)) for rank in (0, 1)
        ]
        messages = [each.communicate()[1] for each in both]
        assert [each.returncode for each in both] == [0, 0], messages
        return "".join(messages)

    return run


@pytest.fixture(scope="module")
def one(tiny_model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process without dropout made, with all its checkpoints."""
    run = tmp_path_factory.mktemp("one") / "run"
    arguments = command(tiny_model, corpus, run, dropout=0.0, save_total_limit=9)
    done = shell([*arguments, "--keep-checkpoints"])
    assert done.returncode == 0, done.stderr
    return run


def losses_of(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_a_killed_run_ends_with_the_same_bits(
    begin: Callable[..., Any], tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert shell(command(tiny_model, corpus, whole, dropout=0.1)).returncode == 0
    arguments = command(tiny_model, corpus, run, dropout=0.1)
    process = begin(*arguments)
    deadline = time.monotonic() + 100
    while not (run / "checkpoints" / "step-4").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Also what a kill in the midst of writing leaves behind.
    (run / "checkpoints" / ".step-6.partial").mkdir(exist_ok=True)

    done = shell([*arguments, "--resume", "--json"])

    assert done.returncode == 0, done.stderr
    assert "resuming after step" in done.stderr
    expected = (whole / "model.safetensors").read_bytes()
    assert (run / "model.safetensors").read_bytes() == expected
    assert losses_of(run) == losses_of(whole)
    assert json.loads(done.stdout)["num_steps"] == 12


def test_two_processes_have_the_losses_of_one(corpus: Path, tmp_path: Path) -> None:
    alone, two = tmp_path / "alone", tmp_path / "two"
    given = {"dropout": 0.0, "learning_rate": 1e-3, "max_steps": 4, "eval_steps": 2}
    assert shell(command(Path("tiny"), corpus, alone, **given)).returncode == 0

    # The first process counts the corpus, and the other takes its start from there.
    done = torchrun(command(Path("tiny"), corpus, two, **given))

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("start from the corpus") == 1
    assert losses_of(two) == pytest.approx(losses_of(alone), abs=2e-5)
    assert done.stderr.count("step 4 of 4") == 1


def test_one_process_that_torchrun_started_takes_the_path_of_several(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """On CUDA through NCCL."""
    alone = tmp_path / "alone"
    given = {"dropout": 0.0, "max_steps": 3, "eval_steps": 3, "device": device}
    given["precision"] = "float32"
    rounding = 2e-5 if device == "cpu" else 1e-3
    assert shell(command(Path("tiny"), corpus, alone, **given)).returncode == 0
    reduced = []
    all_reduce = torch.distributed.all_reduce
    monkeypatch.setattr(
        torch.distributed,
        "all_reduce",
        lambda *given, **named: (reduced.append(given), all_reduce(*given, **named))[1],
    )
    for name, value in as_rank(0, 1, free_port()).items():
        monkeypatch.setenv(name, value)

    for sharding in ("none", "full"):
        one = tmp_path / sharding
        reduced.clear()
        done = shell(command(Path("tiny"), corpus, one, **given, sharding=sharding))

        assert done.returncode == 0, done.stderr
        assert reduced
        assert not torch.distributed.is_initialized()
        assert losses_of(one) == pytest.approx(losses_of(alone), abs=rounding)


def test_another_number_of_processes_goes_on_with_the_same_instances(
    begin: Callable[..., Any],
    two_processes: Callable[[list[str]], str],
    one: Path,
    tiny_model: Path,
    corpus: Path,
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    arguments = command(tiny_model, corpus, run, dropout=0.0)
    process = begin(*arguments)
    while not (run / "checkpoints" / "step-2").exists():
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM

    two_processes([*arguments, "--resume"])

    assert losses_of(run) == pytest.approx(losses_of(one), abs=2e-5)


def begun_at(step: int, other: Path, run: Path) -> Path:
    """A RUN that stands where another one stood after a step."""
    shutil.copytree(other / "checkpoints" / f"step-{step}", run / "checkpoints" / f"step-{step}")
    # What a kill leaves of the next one, which one process must remove for all.
    partial = run / "checkpoints" / ".step-9.0.partial"
    partial.mkdir()
    (partial / "model.safetensors").touch()
    return run


def test_shards_have_the_losses_of_one_process_and_one_goes_on_from_them(
    two_processes: Callable[[list[str]], str],
    one: Path,
    tiny_model: Path,
    corpus: Path,
    tmp_path: Path,
) -> None:
    given = {"dropout": 0.0, "save_total_limit": 9}
    two, again = tmp_path / "two", tmp_path / "again"

    two_processes(command(tiny_model, corpus, two, "--keep-checkpoints", **given, sharding="full"))

    assert losses_of(two) == pytest.approx(losses_of(one), abs=2e-5)
    assert json.loads((two / "config.json").read_text())["architectures"] == ["BertForPreTraining"]
    expected, found = read_tensors(one), read_tensors(two)
    assert found.keys() == expected.keys()
    for name, each in found.items():
        torch.testing.assert_close(each, expected[name], atol=2e-4, rtol=0, msg=name)
    begun_at(6, two, again)
    done = shell(command(tiny_model, corpus, again, "--resume", **given))
    assert done.returncode == 0, done.stderr
    assert "resuming after step 6" in done.stderr
    assert losses_of(again) == pytest.approx(losses_of(one)[6:], abs=2e-5)


def test_shards_go_on_from_one_process_with_adamw(
    two_processes: Callable[[list[str]], str], tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    given = {"dropout": 0.0, "save_total_limit": 9, "optimizer": "adamw"}
    alone, two = tmp_path / "alone", tmp_path / "two"
    assert shell(command(tiny_model, corpus, alone, "--keep-checkpoints", **given)).returncode == 0
    begun_at(6, alone, two)

    two_processes(command(tiny_model, corpus, two, "--resume", **given, sharding="full"))

    assert losses_of(two) == pytest.approx(losses_of(alone)[6:], abs=2e-5)


def test_two_nodes_branch_skip_probe_and_log(
    begin: Callable[..., Any], one: Path, tmp_path: Path
) -> None:
    """Each node has a process; both see the folder of RUN, and one writes it."""
    probe = tmp_path / "probe.csv"
    rows = [f"the {word} is near {n},{word}" for n in range(20) for word in ("cat", "dog")]
    probe.write_text("text,label\n" + "\n".join(rows) + "\n")
    given = [
        "--branch",
        f"{one}@4",
        "--skip-steps",
        "6:7",
        "--probe",
        str(probe),
        "--keep-every",
        "2",
    ]
    given += ["--preempt-seconds", "60", "--peak-tflops", "1", "--log-to", "json:dumps"]
    alone = shell(["pretrain", *given, "--out", str(tmp_path / "alone")])
    port = free_port()
    nodes = [
        {**as_rank(rank, 2, port), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"} for rank in (0, 1)
    ]
    words = ["pretrain", *given, "--sharding", "full", "--out", str(tmp_path / "nodes")]

    both = [begin(*words, stderr=subprocess.PIPE, **node) for node in nodes]

    messages = [each.communicate()[1] for each in both]
    assert [each.returncode for each in both] == [0, 0], messages
    assert alone.returncode == 0, alone.stderr
    assert losses_of(tmp_path / "nodes") == pytest.approx(losses_of(tmp_path / "alone"), rel=1e-4)
    assert (tmp_path / "nodes/checkpoints/step-8").exists()
    logged = [
        json.loads(line) for line in (tmp_path / "nodes/metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in logged if "skipped" in line] == [6, 7]
    assert sum("eval_probe_probe" in line for line in logged) == 2
    # What takes no figures is told once, by the process that writes.
    assert [message.count("json:dumps takes no more figures") for message in messages] == [1, 0]
