"""``tidybert inspect``: a pre-training instance in words, as training reads it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import print_json, print_line, print_table
from tidybert.errors import UsageError
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.training.argument_checks import check_seed

if TYPE_CHECKING:
    from tidybert.pretraining.instances import PretrainingInstances
    from tidybert.pretraining.places import Position

PARTS: Final = ("train", "held-out")
# Of next_sentence_label, by objective.
MEANINGS: Final = {
    "mlm+nsp": ("B follows A", "B is from another document"),
    "mlm+sop": ("A and B are in their order", "A and B are swapped"),
}


@dataclass(frozen=True, kw_only=True)
class InspectFlags(flags.JsonFlag):
    index: int = field(default=0, metadata={"min": 0})
    """``--index N``: Number of the instance, from 0."""
    epoch: int = field(default=0, metadata={"min": 0})
    """``--epoch N``: Number of the epoch, from 0."""
    part: str = "train"
    """Part of the corpus: train or held-out."""
    seed: int = 42
    """Random seed for the instances and their masks."""


@takes(given=InspectFlags, options=InstanceOptions, masking=MaskingOptions)
def inspect(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="Directory that build-corpus wrote.")
    ],
    *,
    given: InspectFlags,
    options: InstanceOptions,
    masking: MaskingOptions,
) -> None:
    """Show an instance of a corpus: its segments, where they are from, and its masks.

    Training makes instances as it goes. The same seed, epoch and options give the same instance
    here.
    """
    part, epoch, index = given.part, given.epoch, given.index
    check_seed(given.seed)
    if part not in PARTS:
        raise UsageError(f"--part {part}: expected {' or '.join(PARTS)}")

    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.instances import PretrainingInstances

    instances = PretrainingInstances(
        TokenCorpus(corpus, "train" if part == "train" else "held-out"),
        options,
        masking,
        given.seed,
    )
    shown = describe(instances, instances.position(epoch, index))
    shown = {"corpus": corpus, "part": part, "epoch": epoch, "index": index, **shown}
    if given.json:
        print_json(shown)
    else:
        _print(shown)


def describe(instances: "PretrainingInstances", position: "Position") -> dict[str, Any]:
    """One instance for JSON: segments, tokens as the model reads them, predictions."""
    places, _ = instances.take(position, 1)
    batch = instances.build(places)
    tokenizer, ids = instances.tokenizer, batch.input_ids
    predictions = []
    for row, label in zip(batch.masked_lm_positions, batch.masked_lm_labels, strict=True):
        if ids[row] == label:
            what = "kept"
        else:
            what = "masked" if ids[row] == tokenizer.mask_token_id else "replaced"
        token, became = tokenizer.convert_ids_to_tokens([label, ids[row]])
        predictions.append({"position": row, "token": token, "became": became, "what": what})
    segments = []
    end = 1
    for name, document, begin, after in (
        ("A", places.document_a, places.begin_a, places.end_a),
        ("B", places.document_b, places.begin_b, places.end_b),
    )[: 1 + instances.options.pairs]:
        start, end = end, end + int(after[0] - begin[0]) + 1
        segments.append(
            {
                "segment": name,
                "document": document[0],
                "source": instances.corpus.source_of(int(document[0])),
                "first_token": begin[0],
                "num_tokens": after[0] - begin[0],
                "text": tokenizer.decode(ids[start : end - 1].tolist(), skip_special_tokens=False),
            }
        )
    label = None if batch.next_sentence_label is None else int(batch.next_sentence_label[0])
    return {
        "objective": instances.options.objective,
        "seed": instances.seed,
        "next_sentence_label": label,
        "segments": segments,
        "predictions": predictions,
        "tokens": tokenizer.convert_ids_to_tokens(ids),
        "token_type_ids": batch.token_type_ids,
    }


def _print(shown: dict[str, Any]) -> None:
    print_line(
        f"instance {shown['index']:,} of epoch {shown['epoch']} ({shown['part']}, "
        f"{shown['objective']}, seed {shown['seed']}), {len(shown['tokens'])} tokens"
    )
    label = shown["next_sentence_label"]
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
    file = Path(segment["source"]).name
    return f"document {segment['document']:,}\n{file}\n{segment['num_tokens']:,} tokens"
