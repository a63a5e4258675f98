"""Time steps of pre-training (masked words and next sentence), in tokens without padding.

The other side is transformers' BertForPreTraining with its Trainer and its
DataCollatorForLanguageModeling, on the same instances, padded to --max-seq-length.  Each
measurement is a process of its own.  It also counts how fast instances (pairs with their masks) are
made, all of them before the clock starts.  Without --data, a corpus is built of English Wikipedia
from the data folder (TIDYBERT_DATA, or ../shared/data) or of the bundled tickets, with the
vocabulary of minilm.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.harness import datasets, script, steps
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
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BertTokenizer
from tidybert.training.precision import is_mixed
from tidybert.training.training_arguments import Precision

_CORPUS_LINES: Final = 8000
# Padded rows at once on a GPU, as many as ours: all logits of a whole step would not fit.
_MICRO_BATCH_ROWS: Final = 32_768


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
        names = "tokens_per_step learning_rate warmup_steps dropout compile micro_batch precision"
        same: dict[str, Any] = {name: getattr(self, name) for name in (*names.split(), "seed")}
        # No step is slowed by an evaluation or a checkpoint.
        same |= {"eval_steps": self.num_steps + 1, "save_steps": self.num_steps + 1}
        return PretrainingArguments(recipe="bert", max_steps=self.num_steps, long_share=0.0, **same)


def corpus_of(lines: list[str], tokenizer: BertTokenizer, folder: Path, *, held_out: float) -> Path:
    """A corpus in ``folder``; a document has 30 lines, like an article."""
    text = folder / "text.txt"
    parts = [lines[start : start + 30] for start in range(0, len(lines), 30)]
    text.write_text("\n\n".join("\n".join(part) for part in parts) + "\n", encoding="utf-8")
    build_corpus([text], tokenizer, folder / "corpus", held_out=held_out)
    return folder / "corpus"


def measure(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Train one side, in the process that was started for it; instances are counted in tokens."""
    work = PretrainWork(**given)
    instances = work.instances()
    stream = InstanceStream(instances, work.tokens_per_step, work.tokens_per_step)
    position, batches, seconds = Position(), [], 0.0
    for _ in range(work.num_steps):
        taken, taking, _ = script.timed(partial(stream.take, position))
        seconds += taking
        batches.append(instances.take(position, taken.num_sequences)[0])
        position = taken.position
    result = train_ours(work) if side == "ours" else train_theirs(work, instances, batches)
    counts = [int(instances.lengths(places).sum()) for places in batches]
    device, share = torch.device(work.device), MaskingOptions().predicted_share
    peak = peak_flops(device, mixed=is_mixed(work.precision, device))
    per_token = flops_per_token(work.config(instances.corpus), work.max_seq_length, share)
    return {
        **result,
        "step_counts": counts,
        "share_of_padding": 1 - sum(counts) / (sum(map(len, batches)) * work.max_seq_length),
        "instances_per_second": sum(counts) / seconds,
        "peak_rate": peak and peak / per_token,
        "threads": torch.get_num_threads(),
    }


def train_ours(work: PretrainWork) -> dict[str, Any]:
    """Train tidybert; returns what StepClock found and {"losses"}."""
    clock = steps.StepClock(torch.device(work.device), work.steps, work.profiled_steps)
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
        run_pretraining(job, Reporter(step=step))
    return {**clock.found(), "losses": losses}


def train_theirs(work: PretrainWork, instances: Any, batches: Sequence[Any]) -> dict[str, Any]:
    """Train transformers' model on each step's instances; returns the same."""
    # Only this side needs transformers.
    from benchmarks.speed.transformers_training import train_in_order

    transformers = script.quiet_transformers()
    transformers.set_seed(work.seed)
    corpus = instances.corpus
    tokenizer = transformers.AutoTokenizer.from_pretrained(corpus.directory)
    # On CUDA, sdpa is the memory-efficient kernel: PyTorch's flash attention takes no mask.
    settings = {
        **work.config(corpus).to_dict(),
        "attn_implementation": work.attention,
        "hidden_dropout_prob": work.dropout,
        "attention_probs_dropout_prob": work.dropout,
    }
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings))
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    dataset: list[dict[str, Any]] = []
    numbers: list[list[int]] = []
    for places in batches:
        numbers.append(list(range(len(dataset), len(dataset) + len(places))))
        spans = (places.begin_a, places.end_a), (places.begin_b, places.end_b)
        texts = zip(*(corpus.tokens(*each) for each in spans), places.label, strict=True)
        for first, second, label in texts:
            ids = [cls, *first.tolist(), sep, *second.tolist(), sep]
            kinds = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            one = {"input_ids": ids, "token_type_ids": kinds, "next_sentence_label": int(label)}
            dataset.append(one)
    masker = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    def collate(chosen: list[dict[str, Any]]) -> dict[str, Any]:
        fields = ("input_ids", "token_type_ids")
        padded = tokenizer.pad(
            [{name: one[name] for name in fields} for one in chosen],
            padding="max_length",
            max_length=work.max_seq_length,
        )
        rows = [{name: padded[name][row] for name in padded} for row in range(len(chosen))]
        masked: dict[str, Any] = masker(rows)
        masked["next_sentence_label"] = torch.tensor([one["next_sentence_label"] for one in chosen])
        return masked

    return train_in_order(
        model,
        dataset,
        numbers,
        collate,
        work,
        num_parts=parts_of_a_step(work, max(map(len, batches))),
        warmup_steps=min(work.warmup_steps, work.num_steps // 10),
        torch_compile=work.compile,
        remove_unused_columns=False,
    )


def parts_of_a_step(work: PretrainWork, num_sequences: int) -> int:
    """Parts of a step whose gradients add up: one on a CPU."""
    given = str(work.micro_batch)
    rows = int(given) if given.isdecimal() else _MICRO_BATCH_ROWS
    return 1 if work.device == "cpu" else math.ceil(num_sequences * work.max_seq_length / rows)


def main(parser: argparse.ArgumentParser) -> None:
    steps.add_training_flags(parser, steps=20, least=4, what="the first 3 do not count")
    parser.set_defaults(dropout=PretrainWork.dropout)
    parser.add_argument("--size", default="mini", help="size of the model, with random weights")
    parser.add_argument("--data", help="corpus from build-corpus (default: a small one)")
    script.add_number(parser, "tokens-per-step", 8192, least=128)
    parser.add_argument("--micro-batch", help="tokens at once, or auto")
    script.add_number(parser, "max-seq-length", 128, least=16)
    parser.add_argument("--compile", action="store_true", help="torch.compile on both sides")
    given = parser.parse_args()
    script.check_device(given)
    sides = script.sides_against(given.against, given.device)
    with tempfile.TemporaryDirectory() as folder:
        source = given.data
        if source is None:
            source, lines = datasets.wikipedia_lines(_CORPUS_LINES)
            tokenizer = BertTokenizer.from_pretrained("minilm")
            given.data = str(corpus_of(lines, tokenizer, Path(folder), held_out=0.05))
        names = ("size", "data", "steps", "tokens_per_step", "max_seq_length", "dropout",
                 "compile", "micro_batch")  # fmt: skip
        settings = {name: getattr(given, name) for name in names}
        work = PretrainWork(**settings, **steps.settings_of(given))
        # What is wrong is reported here, before a process would fail with a traceback.
        config = work.config(TokenCorpus(work.data))
        check_lengths(work.arguments(), work.max_seq_length, config.max_position_embeddings)
        result = steps.time_steps(measure, work, "tokens", sides=sides, rounds=given.rounds)
    remarks = []
    for side, one in result["found"].items():
        name, losses, last = steps.NAMES.get(side, side), one["losses"], one["losses"][-10:]
        mean = f"mean of the last {len(last)} {sum(last) / len(last):.3f}"
        remarks.append(f"loss, {name}: {losses[0]:.3f}, {mean}")
    one, size = result["found"]["ours"], f"{given.steps} steps of {given.tokens_per_step:,} tokens"
    remarks += [
        f"fraction of padding at {given.max_seq_length} tokens: {one['share_of_padding']:.1%}",
        f"instances made: {one['instances_per_second']:,.0f} tokens/s",
    ]
    title = f"Pre-training: {given.size}, {size} of {source}"
    steps.print_training(given, title, "useful tokens", {"data": source, **result}, remarks)
