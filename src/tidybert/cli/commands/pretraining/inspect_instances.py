"""``tidybert inspect``: a pre-training instance in words, as training reads it."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.instance_table import print_instance
from tidybert.cli.output import print_json
from tidybert.errors import UsageError
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.training.argument_checks import check_seed

PARTS: Final = ("train", "held-out")


@dataclass(frozen=True, kw_only=True)
class InspectFlags(flags.JsonFlag):
    input: list[str] | None = None
    """``--input TEXT``: Show the masks of this text instead of a corpus. Give it again for a second
    segment."""
    vocab: str | None = None
    """``--vocab MODEL``: Model whose vocabulary --input uses. If not set: tidybert-small."""
    index: int = field(default=0, metadata={"min": 0})
    """``--index N``: Number of the instance, from 0. With --input: another number, other masks."""
    epoch: int = field(default=0, metadata={"min": 0})
    """``--epoch N``: Number of the epoch, from 0."""
    part: str = "train"
    """Part of the corpus: train or held-out."""
    seed: int = 42
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
    check_seed(given.seed)
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
