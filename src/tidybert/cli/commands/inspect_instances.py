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
    from tidybert.tokenization import BertTokenizer

PARTS: Final = ("train", "held-out")
# Of next_sentence_label, by objective.
MEANINGS: Final = {
    "mlm+nsp": ("B follows A", "B is from another document"),
    "mlm+sop": ("A and B are in their order", "A and B are swapped"),
}


@dataclass(frozen=True, kw_only=True)
class InspectFlags(flags.JsonFlag):
    input: list[str] | None = None
    """``--input TEXT``: Show the masks of this text instead of a corpus. Give it again for a second
    segment."""
    vocab: str | None = None
    """``--vocab MODEL``: Model whose vocabulary --input uses. If not set: tidybert-mini."""
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
        str | None, typer.Argument(metavar="[CORPUS]", help="Directory that build-corpus wrote.")
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
        shown = _of_texts(given, options, masking)
    elif given.vocab is not None:
        raise UsageError("--vocab is for --input; a corpus has its own vocabulary")
    else:
        shown = _of_corpus(corpus, given, options, masking)
    if given.json:
        print_json(shown)
    else:
        _print(shown)


def _of_corpus(
    corpus: str, given: InspectFlags, options: InstanceOptions, masking: MaskingOptions
) -> dict[str, Any]:
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.instances import PretrainingInstances

    instances = PretrainingInstances(
        TokenCorpus(corpus, "train" if given.part == "train" else "held-out"),
        options,
        masking,
        given.seed,
    )
    shown = describe(instances, instances.position(given.epoch, given.index))
    where = {"part": given.part, "epoch": given.epoch, "index": given.index}
    return {"corpus": corpus, **where, **shown}


def _of_texts(
    given: InspectFlags, options: InstanceOptions, masking: MaskingOptions
) -> dict[str, Any]:
    """The texts of --input as one instance for JSON."""
    import numpy as np

    from tidybert.pretraining.masking import Masking
    from tidybert.pretraining.random_streams import Purpose, random_bits
    from tidybert.tokenization import BertTokenizer

    texts = given.input or []
    if len(texts) > 2:
        raise UsageError(f"--input is given {len(texts)} times; expected one text or two")
    tokenizer = BertTokenizer.from_pretrained(given.vocab or "tidybert-mini")
    encoding = tokenizer.encode(texts[0], texts[1] if len(texts) == 2 else None)
    ids = np.asarray(encoding.input_ids, np.int32)
    types = np.asarray(encoding.token_type_ids)
    counts = [int((types == side).sum()) - 2 + side for side in range(len(texts))]
    if len(ids) > options.max_seq_length:
        raise UsageError(
            f"--input has {len(ids):,} tokens; give --max-seq-length {len(ids)} to show them all"
        )
    if not all(counts):
        raise UsageError("--input is a text without a token")
    key = random_bits(given.seed, given.epoch, Purpose.MASK_KEY, np.array([given.index]))
    masks = Masking(masking, tokenizer)
    masked = masks.mask(ids, np.array([len(ids)]), key)
    return {
        "epoch": given.epoch,
        "index": given.index,
        "seed": given.seed,
        "segments": [
            {
                "segment": name,
                "num_tokens": count,
                "text": tokenizer.decode(
                    masked.input_ids[start : start + count].tolist(), skip_special_tokens=False
                ),
            }
            # [CLS] is before A, and [SEP] before B.
            for name, start, count in zip("AB", (1, counts[0] + 2), counts, strict=False)
        ],
        "predictions": _predictions(tokenizer, masked.input_ids, masked.positions, masked.labels),
        "tokens": tokenizer.convert_ids_to_tokens(masked.input_ids),
        "token_type_ids": types,
    }


def _predictions(tokenizer: "BertTokenizer", ids: Any, rows: Any, labels: Any) -> list[Any]:
    """How masking changes each token to predict: [MASK], a random token, or no change."""
    predictions = []
    for row, label in zip(rows, labels, strict=True):
        if ids[row] == label:
            what = "kept"
        else:
            what = "masked" if ids[row] == tokenizer.mask_token_id else "replaced"
        token, became = tokenizer.convert_ids_to_tokens([label, ids[row]])
        predictions.append({"position": row, "token": token, "became": became, "what": what})
    return predictions


def describe(instances: "PretrainingInstances", position: "Position") -> dict[str, Any]:
    """One instance for JSON: segments, tokens as the model reads them, predictions."""
    places, _ = instances.take(position, 1)
    batch = instances.build(places)
    tokenizer, ids = instances.tokenizer, batch.input_ids
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
        "predictions": _predictions(
            tokenizer, ids, batch.masked_lm_positions, batch.masked_lm_labels
        ),
        "tokens": tokenizer.convert_ids_to_tokens(ids),
        "token_type_ids": batch.token_type_ids,
    }


def _print(shown: dict[str, Any]) -> None:
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
