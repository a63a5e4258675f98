"""``tidybert inspect``: a pre-training instance in words, as training reads it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import print_json, print_line, print_table
from tidybert.errors import UsageError
from tidybert.options import SEED, Options, option
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions

# What ``tidybert inspect`` prints on a terminal.

# Of next_sentence_label, by objective.
MEANINGS: Final = {
    "mlm+nsp": ("B follows A", "B is from another document"),
    "mlm+sop": ("A and B are in their order", "A and B are swapped"),
}


def print_instance(shown: dict[str, Any]) -> None:
    """An instance of described_instance.py: segments, and a row for each prediction."""
    where = f"{shown['part']}, {shown['objective']}, " if "corpus" in shown else ""
    print_line(
        f"instance {shown['index']:,} of epoch {shown['epoch']} ({where}seed {shown['seed']}), "
        f"{len(shown['tokens'])} tokens"
    )
    label = shown.get("next_sentence_label")
    if label is not None:
        print_line(f"next_sentence_label {label}: {MEANINGS[shown['objective']][label]}")
    print_line()
    print_table(
        {"": "left", "from": "left", "as the model reads it": "left"},
        [(each["segment"], _source(each), each["text"]) for each in shown["segments"]],
    )
    print_line()
    predictions = shown["predictions"]
    print_table(
        {"position": "right", "token": "left", "became": "left", "": "left"},
        [
            (f"{each['position']:,}", each["token"], each["became"], each["what"])
            for each in predictions
        ],
    )
    counts = [
        f"{sum(each['what'] == what for each in predictions)} {what}"
        for what in ("masked", "replaced", "kept")
    ]
    print_line(f"{len(predictions)} to predict: {', '.join(counts)}")


def _source(segment: dict[str, Any]) -> str:
    count = f"{segment['num_tokens']:,} tokens"
    if "source" not in segment:
        return f"--input\n{count}"
    return f"document {segment['document']:,}\n{Path(segment['source']).name}\n{count}"


PARTS: Final = ("train", "held-out")


@dataclass(frozen=True, kw_only=True)
class InspectFlags(flags.JsonFlag, Options):
    input: list[str] | None = None
    """``--input TEXT``: Show the masks of this text instead of a corpus. Give it again for a second
    segment."""
    vocab: str | None = None
    """``--vocab MODEL``: Model whose vocabulary --input uses. If not set: tidybert-small."""
    index: int = option(0, at_least=0)
    """``--index N``: Number of the instance, from 0. With --input: another number, other masks."""
    epoch: int = option(0, at_least=0)
    """``--epoch N``: Number of the epoch, from 0."""
    part: str = "train"
    """Part of the corpus: train or held-out."""
    seed: int = option(42, **SEED)
    """Random seed for the instances and their masks."""


@takes(given=InspectFlags, options=InstanceOptions, masking=MaskingOptions)
def inspect(
    corpus: Annotated[
        str | None, typer.Argument(metavar="CORPUS", help="Directory that build-corpus wrote.")
    ] = None,
    *,
    given: InspectFlags,
    options: InstanceOptions,
    masking: MaskingOptions,
) -> None:
    """Show an instance of a corpus, or a text as one: its segments and its masks.

    Training makes instances as it goes. The same seed, epoch and options give the same instance
    here.
    """
    if given.part not in PARTS:
        raise UsageError(f"--part {given.part}: expected {' or '.join(PARTS)}")
    if (corpus is None) == (given.input is None):
        raise UsageError("give a CORPUS, or a text with --input, and not both")
    if corpus is None:
        from tidybert.pretraining.batches.described_instance import describe_texts
        from tidybert.tokenization import BertTokenizer

        shown = describe_texts(
            given.input or [],
            BertTokenizer.from_pretrained(given.vocab or DEFAULT_MODEL),
            masking,
            max_seq_length=options.max_seq_length,
            seed=given.seed,
            epoch=given.epoch,
            index=given.index,
        )
    elif given.vocab is not None:
        raise UsageError("--vocab is for --input; a corpus has its own vocabulary")
    else:
        shown = _of_corpus(corpus, given, options, masking)
    if given.json:
        print_json(shown)
    else:
        print_instance(shown)


def _of_corpus(
    corpus: str, given: InspectFlags, options: InstanceOptions, masking: MaskingOptions
) -> dict[str, Any]:
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.batches.described_instance import describe
    from tidybert.pretraining.batches.instances import PretrainingInstances

    instances = PretrainingInstances(
        TokenCorpus(corpus, "train" if given.part == "train" else "held-out"),
        options,
        masking,
        given.seed,
    )
    shown = describe(instances, instances.position(given.epoch, given.index))
    where = {"part": given.part, "epoch": given.epoch, "index": given.index}
    return {"corpus": corpus, **where, **shown}
