"""Time steps of pre-training (masked words and next sentence), in tokens without padding.

The other side is transformers' BertForPreTraining with its Trainer and its
DataCollatorForLanguageModeling, on the same instances, padded to --max-seq-length.  Each
measurement is a process of its own.  It also counts how fast instances (pairs with their masks) are
made, all of them before the clock starts.  Without --data, a corpus is built of English Wikipedia
from the data folder (TIDYBERT_DATA, or ../shared/data) or of the bundled tickets, with the
vocabulary of minilm.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.harness.datasets import wikipedia_lines
from benchmarks.harness.rounds import at_least, check_device, sides_against
from benchmarks.harness.step_clock import StepClock
from benchmarks.speed.training import (
    print_training,
    settings_of,
    time_steps,
    training_parser,
)
from tidybert.configuration import BertConfig
from tidybert.corpus.building import build_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.batches.stream import InstanceStream
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, check_lengths
from tidybert.pretraining.pretraining_job import PretrainingJob
from tidybert.pretraining.pretraining_run import run_pretraining
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.tokenization import BertTokenizer
from tidybert.training.precision import is_mixed
from tidybert.training.reports import TrainingCallbacks
from tidybert.training.training_arguments import Precision

_CORPUS_LINES: Final = 8000


@dataclass(frozen=True)
class PretrainWork:
    """Train a new model of a size on a corpus; travels as JSON to the processes."""

    size: str
    data: str
    """A directory that build-corpus wrote."""
    steps: int
    tokens_per_step: int = 8192
    max_seq_length: int = 128
    dropout: float = 0.1
    learning_rate: float = 5e-4
    warmup_steps: int = 100
    device: str = "cpu"
    seed: int = 1
    threads: int | None = None
    compile: bool = False
    micro_batch: int | str | None = None
    """As pretrain takes it; the other side divides a step into parts only on a GPU."""
    precision: Precision = "auto"
    attention: str = "sdpa"
    """transformers' attn_implementation."""
    profiled_steps: int = 0
    """Further steps, which run under the profiler and are not timed."""

    @property
    def num_steps(self) -> int:
        """All steps: timed, not timed and profiled."""
        return self.steps + self.profiled_steps

    def instances(self) -> PretrainingInstances:
        """The instances that both sides train on."""
        options = InstanceOptions(max_seq_length=self.max_seq_length)
        return PretrainingInstances(TokenCorpus(self.data), options, seed=self.seed)

    def config(self, corpus: TokenCorpus) -> BertConfig:
        """The configuration of the model that both sides train."""
        return BertConfig.from_name(self.size, vocab_size=corpus.manifest.vocabulary["vocab_size"])

    def arguments(self) -> PretrainingArguments:
        """The training arguments of our side."""
        return PretrainingArguments(
            recipe="bert",
            max_steps=self.num_steps,
            tokens_per_step=self.tokens_per_step,
            learning_rate=self.learning_rate,
            warmup_steps=self.warmup_steps,
            dropout=self.dropout,
            compile=self.compile,
            micro_batch=self.micro_batch,
            precision=self.precision,
            long_share=0.0,
            # No step is slowed by an evaluation or a checkpoint.
            eval_steps=self.num_steps + 1,
            save_steps=self.num_steps + 1,
            seed=self.seed,
        )


@contextmanager
def bench_corpus(data: str | None) -> Iterator[tuple[str, str]]:
    """(name, directory) of a corpus: ``data``, or one that is built for the block."""
    if data is not None:
        yield data, data
        return
    source, lines = wikipedia_lines(_CORPUS_LINES)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = BertTokenizer.from_pretrained("minilm")
        yield source, str(corpus_of(lines, tokenizer, Path(folder), held_out=0.05))


def corpus_of(lines: list[str], tokenizer: BertTokenizer, folder: Path, *, held_out: float) -> Path:
    """A corpus in ``folder``; a document has 30 lines, like an article."""
    text = folder / "text.txt"
    parts = [lines[start : start + 30] for start in range(0, len(lines), 30)]
    text.write_text("\n\n".join("\n".join(part) for part in parts) + "\n", encoding="utf-8")
    build_corpus([text], tokenizer, folder / "corpus", held_out=held_out)
    return folder / "corpus"


def measure(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Train one side, in the process that was started for it.

    Returns what training.py says, and {"losses", "share_of_padding", "instances_per_second" (tokens
    of the instances that were made)}.
    """
    work = PretrainWork(**given)
    instances = work.instances()
    stream = InstanceStream(instances, work.tokens_per_step, work.tokens_per_step)
    position, batches = Position(), []
    seconds = 0.0
    for _ in range(work.num_steps):
        begin = time.perf_counter()
        taken = stream.take(position)
        seconds += time.perf_counter() - begin
        batches.append(instances.take(position, taken.num_sequences)[0])
        position = taken.position
    if side == "ours":
        result = _train_ours(work)
    else:
        from benchmarks.speed.transformers_training import run_pretraining

        result = run_pretraining(work, instances, batches)
    counts = [int(instances.lengths(places).sum()) for places in batches]
    return {
        **result,
        "step_counts": counts,
        "share_of_padding": 1 - sum(counts) / (sum(map(len, batches)) * work.max_seq_length),
        "instances_per_second": sum(counts) / seconds,
        "peak_rate": peak_tokens_per_second(work, instances.corpus),
        "threads": torch.get_num_threads(),
    }


def peak_tokens_per_second(work: PretrainWork, corpus: TokenCorpus) -> float | None:
    """The most that the work's device can do by its maker's figures; None where not known."""
    device = torch.device(work.device)
    peak = peak_flops(device, mixed=is_mixed(work.precision, device))
    share = MaskingOptions().predicted_share
    return peak and peak / flops_per_token(work.config(corpus), work.max_seq_length, share)


def _train_ours(work: PretrainWork) -> dict[str, Any]:
    clock = StepClock(torch.device(work.device), work.steps, work.profiled_steps)
    losses: list[float] = []

    def step(done: Any) -> None:
        clock.step_ended()
        losses.append(done.loss)

    with tempfile.TemporaryDirectory() as folder:
        job = PretrainingJob(
            work.size,
            work.data,
            work.arguments(),
            out=Path(folder) / "run",
            instances=InstanceOptions(max_seq_length=work.max_seq_length),
            device=work.device,
        )
        run_pretraining(job, TrainingCallbacks(step=step))
    return {"step_seconds": clock.step_seconds(), "profile": clock.profile(), "losses": losses}


def remarks_on(found: Mapping[str, Mapping[str, Any]], length: int) -> Iterator[str]:
    """Lines on the losses, the padding and the instances."""
    for side, one in found.items():
        name, losses = "tidybert" if side == "ours" else side, one["losses"]
        last = losses[-10:]
        mean = sum(last) / len(last)
        yield f"loss, {name}: {losses[0]:.3f}, mean of the last {len(last)} {mean:.3f}"
    one = found["ours"]
    yield f"fraction of padding at {length} tokens: {one['share_of_padding']:.1%}"
    yield f"instances made: {one['instances_per_second']:,.0f} tokens/s"


def main() -> None:
    parser = training_parser(
        __doc__, steps=20, least=4, what="the first 3 do not count", dropout=0.1
    )
    parser.add_argument("--size", default="mini", help="size of the model, with random weights")
    parser.add_argument("--data", help="corpus from build-corpus (default: a small one)")
    parser.add_argument("--tokens-per-step", type=at_least(128), default=8192)
    parser.add_argument("--micro-batch", help="tokens at once, or auto")
    parser.add_argument("--max-seq-length", type=at_least(16), default=128)
    parser.add_argument("--compile", action="store_true", help="torch.compile on both sides")
    given = parser.parse_args()
    check_device(given)
    sides = sides_against(given.against, given.device)
    with bench_corpus(given.data) as (source, directory):
        work = PretrainWork(
            given.size,
            directory,
            given.steps,
            given.tokens_per_step,
            given.max_seq_length,
            given.dropout,
            compile=given.compile,
            micro_batch=given.micro_batch,
            **settings_of(given),
        )
        # What is wrong is reported here, before a process would fail with a traceback.
        config = work.config(TokenCorpus(directory))
        check_lengths(work.arguments(), work.max_seq_length, config.max_position_embeddings)
        result = time_steps(measure, work, "tokens", sides=sides, rounds=given.rounds)
    print_training(
        f"Pre-training: {given.size}, {given.steps} steps of {given.tokens_per_step:,} tokens of "
        f"{source}",
        {"bench": "pretrain", "model": given.size, "data": source, **result},
        ("useful tokens/s", "tokens_per_second"),
        list(remarks_on(result["found"], given.max_seq_length)),
        given,
    )
