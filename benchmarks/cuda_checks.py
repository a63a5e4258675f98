"""The checks that benchmarks/cuda.py runs; the last line says what one found.

    python benchmarks/cuda_checks.py kernels --device cuda

``prepare`` writes a corpus, a model with random weights and texts; ``kernels`` holds the device's
kernels against the formula; ``micro-batch`` times and profiles one; ``losses`` compares two
devices; ``resume`` stops a pre-training and goes on.
"""

import argparse
import json
import math
import os
import signal
import string
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.corpus.building import build_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import TidyBertError
from tidybert.modeling import BertForPreTraining
from tidybert.modeling.attention import plain_attention
from tidybert.modeling.kernels.fast_attention import attention, choose_body, first_row_attention
from tidybert.modeling.kernels.masked_lm_loss import masked_lm_loss, plain_masked_lm_loss
from tidybert.modeling.rows import Rows
from tidybert.pretraining.instance_options import InstanceOptions
from tidybert.pretraining.instances import PretrainingInstances
from tidybert.pretraining.objectives import build_pretraining_model, loss_parts
from tidybert.pretraining.places import Position
from tidybert.pretraining.stream import InstanceStream
from tidybert.timing.pretraining_speed import bench_pretraining
from tidybert.timing.setting import TICKETS, find_lines
from tidybert.timing.step_clock import profile_once, share_outside_products
from tidybert.timing.work import PretrainingWork
from tidybert.tokenization import BertTokenizer
from tidybert.training.precision import autocast, is_mixed

# bfloat16 keeps 8 bits: of values near 4, half of the last one is 0.016.
_ERROR: Final = 0.06
_HEADS: Final = 12
_LENGTHS: Final = ((120, 3, 70, 1), (512,) * 4)
_VOCABULARY: Final = 30_522


def prepare(given: argparse.Namespace) -> str:
    """FOLDER/corpus, FOLDER/model and FOLDER/texts.txt."""
    tokens = list(BertTokenizer.from_pretrained("tidybert-mini").vocabulary.tokens)
    known = set(tokens)
    made = ("".join(letters) for letters in product(string.ascii_lowercase, repeat=4))
    tokens += islice((word for word in made if word not in known), _VOCABULARY - len(tokens))
    tokens = tokens[: 2_000 if given.tiny else _VOCABULARY]
    tokenizer = BertTokenizer(tokens)
    source, lines = find_lines()
    if source == TICKETS or given.tiny:
        source, lines = "words at random", random_lines(tokens, 600 if given.tiny else 60_000)
    folder: Path = given.folder
    text = folder / "text.txt"
    parts = ["\n".join(lines[start : start + 10]) for start in range(0, len(lines), 10)]
    text.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    workers = 0 if given.tiny else min(8, os.cpu_count() or 1)
    build_corpus(
        [text],
        tokenizer,
        folder / "corpus",
        held_out=0.1 if given.tiny else 0.02,
        num_workers=workers,
    )
    texts = lines[: 100 if given.tiny else 2_000]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    config = BertConfig.from_name(given.size, vocab_size=len(tokens))
    save_model_directory(
        folder / "model",
        model_state=BertForPreTraining(config).state_dict(),
        config=config,
        tokenizer=tokenizer,
        metadata=ModelMetadata(task="pretrain"),
        architecture="BertForPreTraining",
    )
    device = torch.device(given.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    megabytes = text.stat().st_size / 1e6
    return f"{name}; {megabytes:.1f} MB of {source}, a vocabulary of {len(tokens):,}"


def random_lines(tokens: Sequence[str], number: int) -> list[str]:
    """Paragraphs whose words are as unequal in number as in prose (Zipf's law)."""
    generator = np.random.default_rng(0)
    words = np.array([token for token in tokens if token.isalpha() and token.isascii()])
    generator.shuffle(words)
    shares = 1 / np.arange(2, len(words) + 2)
    lines = []
    for _ in range(number):
        lengths = generator.integers(8, 30, generator.integers(2, 6))
        drawn = iter(generator.choice(words, lengths.sum(), p=shares / shares.sum()).tolist())
        lines.append(" ".join(" ".join(islice(drawn, length)) + "." for length in lengths.tolist()))
    return lines


def kernels(given: argparse.Namespace) -> str:
    """Attention and the masked-LM loss against the formula; dropout's rate; new lengths."""
    device = torch.device(given.device)
    torch.manual_seed(0)
    errors = dict(attention_errors(device))
    errors["masked-LM loss"] = loss_error(device)
    for name, error in errors.items():
        print(f"{name}: {error:.3f}")
    measured = dropout_rate(device)
    times = length_times(device)
    for name, seconds in times.items():
        print(f"{name}: {1e3 * seconds:.2f} ms a layer, forward and backward")
    found = (
        f"largest error {max(errors.values()):.3f}; dropout 0.1 measures {measured:.4f}; new "
        f"lengths take {times['new lengths'] / times['again']:.2f} times as long as again"
    )
    if not (max(errors.values()) < _ERROR and abs(measured - 0.1) < 0.01):
        raise TidyBertError(f"{found}: expected errors under {_ERROR} and a rate of 0.1")
    return found


def rows_of(lengths: Sequence[int], device: torch.device) -> Rows:
    """Rows of these lengths, all of token 0."""
    return Rows.from_flat(np.zeros(sum(lengths)), None, tuple(lengths)).to(device)


def attention_errors(device: torch.device) -> Iterator[tuple[str, float]]:
    """Largest differences in bfloat16, gradients as a share of the largest one."""
    chosen = _LENGTHS if device.type == "cuda" else _LENGTHS[:1]
    for lengths, head, causal in product(chosen, (32, 64), (False, True)):
        rows, width = rows_of(lengths, device), _HEADS * head
        fast = torch.randn(sum(lengths), 3 * width, device=device, dtype=torch.bfloat16)
        formula = fast.float().requires_grad_()
        fast.requires_grad_()
        found = attention(fast, rows, _HEADS, 0.0, causal)
        expected, _ = plain_attention(formula, rows, _HEADS, 0.0, causal)
        gradient = torch.randn_like(expected)
        torch.autograd.backward([found, expected], [gradient.to(found.dtype), gradient])
        assert fast.grad is not None
        assert formula.grad is not None
        body = choose_body(fast, head, 0.0, causal).__name__
        name = f"{body}, {len(lengths)} x up to {max(lengths)}, heads of {head}, causal {causal}"
        yield f"{name}, forward", float((found - expected).detach().abs().max())
        largest = formula.grad.abs().max()
        yield f"{name}, backward", float((fast.grad - formula.grad).abs().max() / largest)
        if not causal:
            query = torch.randn(len(lengths), width, device=device, dtype=torch.bfloat16)
            whole = fast.detach().float()
            whole[rows.first_rows, :width] = query.float()
            keys = fast.detach()[:, width:].contiguous()
            first = first_row_attention(query, keys, rows, _HEADS, 0.0)
            rest = plain_attention(whole, rows, _HEADS, 0.0)[0][rows.first_rows]
            yield f"{name}, first rows", float((first - rest).abs().max())


def loss_error(device: torch.device) -> float:
    """Largest difference of the gradient of hidden states, as a share of the largest one."""
    hidden, words = torch.randn(96, 64, device=device), torch.randn(500, 64, device=device)
    bias, labels = torch.zeros(500, device=device), torch.arange(96, device=device)
    gradients = []
    for function in (masked_lm_loss, plain_masked_lm_loss):
        given = hidden.clone().requires_grad_()
        total = function(given, words.clone().requires_grad_(), bias.clone(), labels).total
        torch.autograd.backward([total])
        assert given.grad is not None
        gradients.append(given.grad)
    fast, formula = gradients
    return float((fast - formula).abs().max() / formula.abs().max())


def dropout_rate(device: torch.device) -> float:
    """The rate of attention's dropout, asked for 0.1; cuDNN's kernel rounds it to sixteenths."""
    lengths, width = (128,) * 16, _HEADS * 64
    given = torch.randn(sum(lengths), 3 * width, device=device, dtype=torch.bfloat16)
    # Equal scores, so that all weights of a token are 1 / 128.
    given[:, : 2 * width] *= 1e-3
    rows = rows_of(lengths, device)
    dropped, whole = (attention(given, rows, _HEADS, rate).float() for rate in (0.1, 0.0))
    # The variance is that of the values times p / (1 - p) / 128.
    ratio = float((dropped - whole).var()) * 128
    return ratio / (1 + ratio)


def length_times(device: torch.device) -> dict[str, float]:
    """Seconds of attention with dropout over lengths that are new, and over the same again."""
    generator = np.random.default_rng(0)
    number = 240 if device.type == "cuda" else 5
    times: dict[str, list[float]] = {"new lengths": [], "again": []}
    for _ in range(4):
        lengths = generator.choice(np.r_[[128] * 150, np.arange(16, 128)], number).tolist()
        size = (sum(lengths), 3 * _HEADS * 64)
        for name in ("new lengths", "again"):
            given = torch.randn(size, device=device, dtype=torch.bfloat16, requires_grad=True)
            wait_for(device)
            begin = time.perf_counter()
            out = attention(given, rows_of(lengths, device), _HEADS, 0.1)
            torch.autograd.backward([out.sum()])
            wait_for(device)
            times[name].append(time.perf_counter() - begin)
    # The first time of all loads the kernels.
    return {name: float(np.median(seconds[1:])) for name, seconds in times.items()}


def micro_batch(given: argparse.Namespace) -> str:
    """Forward and backward of one micro-batch: time, launch, memory, and a profile."""
    device, tokens = torch.device(given.device), given.tokens
    corpus = TokenCorpus(given.data)
    config = replace(
        BertConfig.from_name(given.size, vocab_size=corpus.manifest.vocabulary["vocab_size"]),
        hidden_dropout_prob=given.dropout,
        attention_probs_dropout_prob=given.dropout,
    )
    options = InstanceOptions(max_seq_length=given.max_seq_length)
    stream = InstanceStream(PretrainingInstances(corpus, options, seed=1), tokens, tokens)
    torch.manual_seed(0)
    model = build_pretraining_model("mlm+nsp")(config).to(device).train()
    mixed = is_mixed("auto", device)
    position, batches = Position(), []
    for _ in range(8):
        taken = stream.take(position)
        position = taken.position
        batches.append(taken)

    def run(chosen: Sequence[Any]) -> None:
        for each in chosen:
            with autocast(device, mixed):
                parts = loss_parts(model, each.batches[0].to(device))
            torch.autograd.backward([torch.stack([one.total for one in parts.values()]).sum()])

    run(batches[:3])
    wait_for(device)
    begin = time.perf_counter()
    run(batches[3:7])
    launched = time.perf_counter() - begin
    wait_for(device)
    seconds = (time.perf_counter() - begin) / 4
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    profiled = profile_once(lambda: run(batches[7:]), device)
    for name, taken_seconds, calls in profiled["busiest"]:
        print(f"{1e3 * taken_seconds:10.3f} ms {calls:6,.0f} times  {name}")
    rate = sum(each.num_tokens for each in batches[3:7]) / seconds / 4
    found = f"{1e3 * seconds:.1f} ms, {1e3 * launched / 4:.1f} ms to launch, {rate:,.0f} tokens/s"
    found += f", {share_outside_products(profiled, seconds):.0%} outside products"
    if peak is not None:
        found += f", {peak:.1f} GiB, {profiled['launches']:,.0f} launches"
        found += f", {profiled['synchronisations']:,.0f} synchronisations"
    return found


def losses(given: argparse.Namespace) -> str:
    """Pre-training in float32 without dropout, on the CPU and on the device."""
    work = PretrainingWork(
        given.size, str(given.data), 6, given.tokens, dropout=0.0, precision="float32"
    )
    devices = ("cpu", given.device)
    found = [
        bench_pretraining(replace(work, device=device), sides=("ours",), rounds=1)["losses"]["ours"]
        for device in devices
    ]
    for device, each in zip(devices, found, strict=True):
        print(device, *(f"{loss:.6f}" for loss in each))
    largest = max(abs(one - other) for one, other in zip(*found, strict=True))
    if not largest < 1e-3:
        raise TidyBertError(f"losses differ by up to {largest:.2g}; expected less than 0.001")
    return f"losses of {len(found[0])} steps differ by up to {largest:.1g}"


def resume(given: argparse.Namespace) -> str:
    """The fast recipe; SIGTERM at half the steps; --resume to the end."""
    run: Path = given.folder / "run"
    command = [sys.executable, "-m", "tidybert", "pretrain", given.size, "--recipe", "fast"]
    command += ["--data", str(given.data), "--out", str(run), "--device", given.device]
    command += ["--max-steps", str(given.steps), "--logging-steps", "1"]
    command += ["--tokens-per-step", str(given.tokens), "--save-steps", str(given.steps)]
    command += ["--micro-batch", str(given.tokens // 2)]
    if given.device != "cpu":
        command.append("--compile")
    log, notes = run / "metrics.jsonl", given.folder / "resume.txt"
    environment = {**os.environ, "TORCH_LOGS": "recompiles"}
    with notes.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
        while process.poll() is None and len(steps_of(log)) < given.steps // 2:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait()
        stopped = len(steps_of(log))
        done = subprocess.run([*command, "--resume"], stdout=stream, stderr=stream, env=environment)
    told = notes.read_text()
    print(told[-3000:])
    steps = steps_of(log)
    numbers = [each["step"] for each in steps]
    if done.returncode or numbers != list(range(1, given.steps + 1)):
        raise TidyBertError(f"resume ended with {done.returncode}, steps {numbers}")
    if not all(math.isfinite(each["loss"]) for each in steps):
        raise TidyBertError("a loss is not finite")
    found = f"stopped at step {stopped}, resumed, {len(steps)} steps in all"
    found += f"; {told.count('Recompiling function')} recompilations in both processes"
    return found + (f"; {steps[-1]['mfu']:.1%} of the peak" if "mfu" in steps[-1] else "")


def steps_of(log: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are steps'; a line that is being written does not count."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [each for each in found if "loss" in each]


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


CHECKS: Final = {
    "prepare": prepare,
    "kernels": kernels,
    "micro-batch": micro_batch,
    "losses": losses,
    "resume": resume,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, help="folder for what a check writes")
    parser.add_argument("--data", type=Path, help="corpus that build-corpus wrote")
    parser.add_argument("--size", default="base")
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens at once, or a step")
    parser.add_argument("--max-seq-length", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="a corpus of a few hundred KB")
    given = parser.parse_args()
    try:
        print(CHECKS[given.check](given))
    except TidyBertError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
