"""Steps of fine-tuning and of pre-training timed, beside the same steps of transformers."""

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.harness import datasets, script, steps
from tidybert.catalog import find_model
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import BertConfig
from tidybert.corpus.building import build_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.data.batching import epoch_order
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.inference.loading import fitting_length
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.batches.stream import InstanceStream
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, check_lengths
from tidybert.pretraining.pretraining_job import PretrainingJob
from tidybert.pretraining.pretraining_run import run_pretraining
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
from tidybert.system.reporter import Reporter
from tidybert.tasks.registry import task_class
from tidybert.tokenization import BertTokenizer
from tidybert.training.precision import is_mixed
from tidybert.training.training_arguments import Precision, TrainingArguments


@dataclass(frozen=True)
class FinetuneWork(datasets.Settings):
    """Train on a job's examples, then score its test part; travels as JSON to the processes."""

    job: str
    model: str
    max_steps: int | None = None
    freeze_layers: int = 0
    """Do not train the embeddings and this many of the lowest layers."""
    precision: Precision = "float32"
    device: str = "cpu"
    profiled_steps: int = 0
    """The last steps, which run under the profiler and are not timed; ``max_steps`` counts them."""
    seed: int = 1
    threads: int | None = None
    """Threads of each process; None: PyTorch's choice."""
    is_scored: bool = True
    at_defaults: bool = False
    """A side takes its own default batch size, learning rate and head start."""

    @property
    def task(self) -> str:
        return datasets.JOBS[self.job].task

    def read(self) -> tuple[Any, list[Any], list[Any]]:
        """The task, and the examples to train and to score on."""
        train = list(islice(datasets.examples_of(self.job, "train"), self.num_examples))
        test = datasets.examples_of(self.job, "dev") if self.is_scored else []
        return task_class(self.task).from_examples(train), train, test

    def arguments(self) -> TrainingArguments:
        """The training arguments of our side."""
        names = ("num_train_epochs", "max_steps", "freeze_layers", "precision", "seed")
        arguments = TrainingArguments(**{name: getattr(self, name) for name in names})
        if self.at_defaults:
            return arguments
        return replace(
            arguments, train_batch_size=self.train_batch_size, learning_rate=self.learning_rate,
            # The other side has no other start, and reads [CLS] however few examples there are.
            head_start="random", pooling="cls" if self.task == "classify" else None,
        )  # fmt: skip

    def trained(
        self, reporter: Reporter | None = None, *, out: Path | None = None
    ) -> FinetunedModel[Any]:
        """What tidybert trains; ``out`` is a RUN to write."""
        task, train, _ = self.read()
        given = (task, self.model, train, None, self.arguments())
        more: dict[str, Any] = {"max_seq_length": self.max_seq_length, "device": self.device}
        return run_finetuning(FinetuningJob(*given, out=out, **more), reporter)

    def batches(self, num_examples: int) -> list[list[int]]:
        """The places of each step's examples, in the order of our trainer."""
        found = (
            order[start : start + self.train_batch_size].tolist()
            for epoch in range(self.num_train_epochs)
            for order in [epoch_order(num_examples, self.seed, epoch)]
            for start in range(0, num_examples, self.train_batch_size)
        )
        return list(islice(found, self.max_steps))

    def peak_rate(self) -> float | None:
        """Examples a second at the device's peak; None with frozen layers, which leave work out."""
        device = torch.device(self.device)
        if device.type == "cpu" or self.freeze_layers:
            return None
        task, train, _ = self.read()
        directory = ModelDirectory.open(self.model)
        chosen = [train[index] for batch in self.batches(len(train)) for index in batch]
        features = task.features(chosen, directory.tokenizer, self.max_seq_length)
        lengths = [len(one.input_ids) for one in features]
        mixed = is_mixed(self.precision, device)
        return steps.peak_texts_per_second(directory.config, lengths, device, mixed=mixed)


def max_seq_length_for(model: str, asked: int | None = None) -> int:
    """``asked``, or at most 128 tokens; UsageError for more than MODEL has positions."""
    fitting = fitting_length(BertConfig.from_file(find_model(model) / CONFIG_FILE), asked)
    return min(128, fitting) if asked is None else fitting


def work_of(name: str, model: str, **changes: Any) -> FinetuneWork:
    """The work of a job, as its comparisons do it."""
    settings = {
        each.name: getattr(datasets.JOBS[name], each.name) for each in fields(datasets.Settings)
    }
    return FinetuneWork(name, model, **{**settings, **changes})


def metrics_of(trained: FinetunedModel[Any], examples: Sequence[Any]) -> dict[str, Any]:
    """The metrics of our model, with its last weights, in float32."""
    task = trained.task
    features = task.features(examples, trained.tokenizer, trained.max_seq_length)
    task.add_labels(features, examples)
    outputs = run_features(task, trained.model, features)
    found: dict[str, Any] = task.answers(outputs, features, examples).metrics()
    return found


@contextmanager
def with_dropout(work: FinetuneWork, rate: float | None) -> Iterator[FinetuneWork]:
    """The work on a copy of its MODEL with this dropout; None leaves the MODEL's own."""
    if rate is None:
        yield work
        return
    origin = find_model(work.model).absolute()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for path in origin.iterdir():
            # tidybert.json has the hash of the configuration that changes here.
            if path.is_file() and path.name not in (CONFIG_FILE, METADATA_FILE):
                (copy / path.name).symlink_to(path)
        names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
        config = json.loads((origin / CONFIG_FILE).read_text()) | dict.fromkeys(names, rate)
        (copy / CONFIG_FILE).write_text(json.dumps(config))
        yield replace(work, model=str(copy))


# --- a side in a process of its own
def measure(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Train and score: what ``time_steps`` takes, "metrics" and "seconds" (of training only)."""
    work = FinetuneWork(**given)
    if side == "ours":
        result = _train_ours(work)
    else:
        from benchmarks.speed.transformers_training import run_finetuning as train_theirs

        result = train_theirs(work)
    return {**result, "peak_rate": work.peak_rate(), "threads": torch.get_num_threads()}


def _train_ours(work: FinetuneWork) -> dict[str, Any]:
    profiled = work.profiled_steps
    num_timed = work.max_steps - profiled if profiled and work.max_steps else None
    clock = steps.StepClock(torch.device(work.device), num_timed, profiled)
    counts: list[int] = []

    def step(done: Any) -> None:
        clock.step_ended()
        counts.append(done.num_examples)

    trained = work.trained(Reporter(step=step))
    _, _, test = work.read()
    metrics = metrics_of(trained, test) if test else {}
    seconds = trained.result.seconds
    return {"metrics": metrics, "seconds": seconds, "step_counts": counts, **clock.found()}


# --- a speed
def bench_finetuning(
    work: FinetuneWork,
    *,
    sides: Sequence[str] = script.SIDES,
    num_steps: int = 40,
    rounds: int = 3,
    dropout: float | None = None,
) -> dict[str, Any]:
    """``time_steps`` of so many steps after a warm-up; of a second epoch with frozen layers."""
    untimed = steps.UNTIMED_STEPS if work.device == "cpu" else steps.MOST_WARM_UP_STEPS
    if work.freeze_layers:
        # The first epoch computes the states that later epochs reuse.
        untimed = num_steps
        work = replace(work, num_examples=num_steps * work.train_batch_size)
    # An epoch has at least one step, so this many epochs are enough.
    total = num_steps + untimed + work.profiled_steps
    work = replace(work, is_scored=False, num_train_epochs=total, max_steps=total)
    known = untimed if work.freeze_layers else None
    with with_dropout(work, dropout) as given:
        found = steps.time_steps(
            measure, given, "examples", sides=sides, rounds=rounds, untimed=known
        )
    return {**found, "steps": num_steps}


def finetune(parser: argparse.ArgumentParser) -> None:
    """Time steps of fine-tuning a classifier, 32 texts each.

    The other side is transformers' Trainer with dynamic padding, on the same examples in the same
    order.  With --freeze-layers the second epoch is timed, for which tidybert has kept the frozen
    layers' states.
    """
    script.add_number(parser, "freeze-layers", 0, "lowest K layers", least=0)
    names, what = "model max-seq-length", "timed steps of 32 texts"
    given = steps.parse_training(parser, names, steps=40, least=1, what=what)
    job = datasets.sst2_or_tickets()
    length = max_seq_length_for(given.model, given.max_seq_length)
    more = {"freeze_layers": given.freeze_layers, **steps.settings_of(given)}
    work = work_of(job, given.model, num_examples=None, max_seq_length=length, **more)
    work = replace(work, learning_rate=5e-5)
    # A wrong argument is reported here, before a process would fail with a traceback.
    work.arguments()
    shown = "bfloat16" if is_mixed(given.precision, torch.device(given.device)) else "float32"
    sides = script.sides_against(given.against)
    settings = {"num_steps": given.steps, "rounds": given.rounds, "dropout": given.dropout}
    result = bench_finetuning(work, sides=sides, **settings)
    title = f"Fine-tuning: {given.steps} steps of {work.train_batch_size} texts of {job}"
    steps.print_training(given, f"{title}, {given.model}, {shown}", "examples", result)


# --- pre-training

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
    # Next sentences need two documents, also of the few bundled tickets.
    build_corpus([text], tokenizer, folder / "corpus", held_out=held_out, least_held_out=2)
    return folder / "corpus"


def measure_pretraining(side: str, given: dict[str, Any]) -> dict[str, Any]:
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
        **result, "step_counts": counts,
        "share_of_padding": 1 - sum(counts) / (sum(map(len, batches)) * work.max_seq_length),
        "instances_per_second": sum(counts) / seconds, "peak_rate": peak and peak / per_token,
        "threads": torch.get_num_threads(),
    }  # fmt: skip


def train_ours(work: PretrainWork) -> dict[str, Any]:
    """Train tidybert; returns what StepClock found and {"losses"}."""
    clock = steps.StepClock(torch.device(work.device), work.steps, work.profiled_steps)
    losses: list[float] = []

    def step(done: Any) -> None:
        clock.step_ended()
        losses.append(done.loss)

    with tempfile.TemporaryDirectory() as folder:
        job = PretrainingJob(
            work.size, work.data, work.arguments(), out=Path(folder) / "run",
            instances=InstanceOptions(max_seq_length=work.max_seq_length), device=work.device,
        )  # fmt: skip
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
        **work.config(corpus).to_dict(), "attn_implementation": "sdpa",
        "hidden_dropout_prob": work.dropout, "attention_probs_dropout_prob": work.dropout,
    }  # fmt: skip
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
        model, dataset, numbers, collate, work,
        num_parts=parts_of_a_step(work, max(map(len, batches))),
        warmup_steps=min(work.warmup_steps, work.num_steps // 10), torch_compile=work.compile,
        remove_unused_columns=False,
    )  # fmt: skip


def parts_of_a_step(work: PretrainWork, num_sequences: int) -> int:
    """Parts of a step whose gradients add up: one on a CPU."""
    given = str(work.micro_batch)
    rows = int(given) if given.isdecimal() else _MICRO_BATCH_ROWS
    return 1 if work.device == "cpu" else math.ceil(num_sequences * work.max_seq_length / rows)


def pretrain(parser: argparse.ArgumentParser) -> None:
    """Time steps of pre-training (masked words and next sentence), in tokens without padding.

    The other side is transformers' BertForPreTraining with its Trainer and its
    DataCollatorForLanguageModeling, on the same instances, padded to --max-seq-length.  It also
    counts how fast instances (pairs with their masks) are made, all of them before the clock
    starts.  Without --data, a corpus is built of English Wikipedia with the vocabulary of minilm.
    """
    parser.set_defaults(dropout=PretrainWork.dropout)
    parser.add_argument("--size", default="mini", help="size of the model, with random weights")
    parser.add_argument("--data", help="corpus from build-corpus (default: a small one)")
    script.add_number(parser, "tokens-per-step", 8192, least=128)
    parser.add_argument("--micro-batch", help="tokens at once, or auto")
    script.add_number(parser, "max-seq-length", 128, least=16)
    parser.add_argument("--compile", action="store_true", help="torch.compile on both sides")
    what = "the first 3 do not count"
    given = steps.parse_training(parser, "", steps=20, least=4, what=what)
    sides = script.sides_against(given.against)
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
        result = steps.time_steps(
            measure_pretraining, work, "tokens", sides=sides, rounds=given.rounds
        )
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
