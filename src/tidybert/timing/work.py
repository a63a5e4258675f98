"""The work that both sides of a measurement do: a fine-tuning, or a pre-training.

It travels as JSON to the process that measures.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from tidybert.configuration import BertConfig
from tidybert.corpus.building import build_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.data.batching import epoch_order
from tidybert.files.read_options import ReadOptions
from tidybert.pretraining.instance_options import InstanceOptions
from tidybert.pretraining.instances import PretrainingInstances
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.tasks.registry import task_class
from tidybert.timing.setting import find_lines
from tidybert.tokenization import BertTokenizer
from tidybert.training.training_arguments import TrainingArguments

_CORPUS_LINES: Final = 8000


@dataclass(frozen=True)
class FinetuningWork:
    """Train on a file's examples, then score another's."""

    task: str
    """classify, regress or choose."""
    model: str
    train: str
    dev: str | None
    """None: do not score."""
    options: ReadOptions
    num_examples: int | None = None
    """Train on this many examples from the first; None for all."""
    max_seq_length: int = 128
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: int = 1
    max_steps: int | None = None
    freeze_layers: int = 0
    """Do not train the embeddings and this many of the lowest layers."""
    precision: str = "auto"
    """On both sides, as finetune takes it."""
    dropout: float | None = None
    """On both sides, in a bench; None: as MODEL says."""
    device: str = "cpu"
    attention: str = "sdpa"
    """transformers' attn_implementation."""
    profiled_steps: int = 0
    """The last steps, which run under the profiler and are not timed; ``max_steps`` counts them."""
    seed: int = 1
    threads: int | None = None
    """Threads of each process; None: PyTorch's choice."""
    at_defaults: bool = False
    """Our side takes its default head start, batch size and learning rate."""

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """The work from what ``asdict`` made of it."""
        return cls(**{**given, "options": ReadOptions(**given["options"])})

    def read(self) -> tuple[Any, list[Any], list[Any]]:
        """The task, and the examples to train and to score on."""
        chosen = task_class(self.task)
        read = chosen.read(self.train, self.options, need_label=True)
        train = list(islice(read, self.num_examples))
        task = chosen.from_examples(train)
        dev = list(task.read(self.dev, self.options, need_label=True)) if self.dev else []
        return task, train, dev

    def arguments(self) -> TrainingArguments:
        """The training arguments of our side."""
        arguments = TrainingArguments(
            num_train_epochs=self.num_train_epochs,
            max_steps=self.max_steps,
            freeze_layers=self.freeze_layers,
            precision=self.precision,
            seed=self.seed,
        )
        if self.at_defaults:
            return arguments
        return replace(
            arguments,
            train_batch_size=self.train_batch_size,
            learning_rate=self.learning_rate,
            # The other side has no other start.
            head_start="random",
        )

    def batches(self, num_examples: int) -> Iterator[list[int]]:
        """The places of each batch's examples, in the order of our trainer."""
        for epoch in range(self.num_train_epochs):
            order = epoch_order(num_examples, self.seed, epoch)
            for start in range(0, num_examples, self.train_batch_size):
                yield order[start : start + self.train_batch_size].tolist()


@dataclass(frozen=True)
class PretrainingWork:
    """Train a new model of a size on a corpus."""

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
    """As pretrain takes it; the other side divides a step into parts on a GPU alone."""
    precision: str = "auto"
    """On both sides, as pretrain takes it."""
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
    """(name, directory) of a corpus: ``data``, or one that is built for the block.

    The built one is a megabyte or two of the data folder's Wikipedia, else of the bundled tickets,
    with the vocabulary of minilm.
    """
    if data is not None:
        yield data, data
        return
    source, lines = find_lines(_CORPUS_LINES)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        # A document has 30 paragraphs, like an article.
        parts = [lines[start : start + 30] for start in range(0, len(lines), 30)]
        text.write_text("\n\n".join("\n".join(part) for part in parts) + "\n", encoding="utf-8")
        directory = Path(folder) / "corpus"
        tokenizer = BertTokenizer.from_pretrained("minilm")
        build_corpus([text], tokenizer, directory, held_out=0.05)
        yield source, str(directory)
