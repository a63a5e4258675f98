"""What ``tidybert inspect`` prints on a terminal."""

from pathlib import Path
from typing import Any, Final

from tidybert.cli.output import print_line, print_table

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
