"""The pre-training that both sides of a measurement do: corpus, instances and arguments."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidybert.configuration import BertConfig
from tidybert.timing.bench_texts import find_lines

if TYPE_CHECKING:
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.instances import PretrainingInstances
    from tidybert.pretraining.pretraining_arguments import PretrainingArguments

_CORPUS_LINES: Final = 8000


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
    """On our side; the other side takes a whole step at once."""
    precision: str = "auto"
    """As pretrain's, on both sides."""


def work_instances(work: PretrainingWork) -> "PretrainingInstances":
    """The instances that both sides train on."""
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.instance_options import InstanceOptions
    from tidybert.pretraining.instances import PretrainingInstances

    options = InstanceOptions(max_seq_length=work.max_seq_length)
    return PretrainingInstances(TokenCorpus(work.data), options, seed=work.seed)


def config_of(work: PretrainingWork, corpus: "TokenCorpus") -> BertConfig:
    """The configuration of the model that both sides train."""
    return BertConfig.from_name(work.size, vocab_size=corpus.manifest.vocabulary["vocab_size"])


def arguments_of(work: PretrainingWork) -> "PretrainingArguments":
    """The training arguments of our side."""
    from tidybert.pretraining.pretraining_arguments import PretrainingArguments

    return PretrainingArguments(
        recipe="bert",
        max_steps=work.steps,
        tokens_per_step=work.tokens_per_step,
        learning_rate=work.learning_rate,
        warmup_steps=work.warmup_steps,
        dropout=work.dropout,
        compile=work.compile,
        micro_batch=work.micro_batch,
        precision=work.precision,
        long_share=0.0,
        # No step is slowed by an evaluation or a checkpoint.
        eval_steps=work.steps + 1,
        save_steps=work.steps + 1,
        seed=work.seed,
    )


@contextmanager
def bench_corpus(data: str | None) -> Iterator[tuple[str, str]]:
    """(name, directory) of a corpus: ``data``, or one that is built for the block.

    It is built of a megabyte or two of the data folder's Wikipedia, else of the bundled tickets,
    with the vocabulary of minilm.
    """
    if data is not None:
        yield data, data
        return
    from tidybert.corpus.building import build_corpus
    from tidybert.tokenization import BertTokenizer

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
