"""Count the padded cells of padded batches: what rows without padding save.

    python benchmarks/padding.py --write benchmarks/NOTES.md

Batches are those of glue.py and text.py: texts cut at 128 tokens, 32 a batch in the first seed's
order, padded to the longest of the batch.  The data folder is TIDYBERT_DATA or ../shared/data.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import glue
import numpy as np
import text
from side_by_side import put_between

from tidybert import BertTokenizer


def rows(model: str) -> Iterator[str]:
    """A table row for each task in the language of the model's vocabulary."""
    tokenizer = BertTokenizer.from_pretrained(model)
    for name, job in {**glue.TASKS, **text.TASKS}.items():
        if name == "ChnSentiCorp":
            continue
        work = job.work(model, 1, None)
        task, train, _ = work.read()
        features = task.features(train, tokenizer, work.max_seq_length)
        lengths = np.array([len(one.input_ids) for one in features])
        padded = [lengths[batch].max() * len(batch) for batch in work.batches(len(lengths))]
        tokens = lengths.sum() * work.num_train_epochs
        yield f"| {name} | {len(lengths):,} | {lengths.mean():.1f} | {sum(padded) / tokens:.2f} |"


def main() -> None:
    """Print the table, and put it between its marks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    arguments = parser.parse_args()
    head = ["| task | examples | tokens an example | padded cells a token |", "|---|---|---|---|"]
    lines = [*head, *rows(arguments.model)]
    print("\n".join(lines))
    if arguments.write:
        put_between(arguments.write, "padding", lines)


if __name__ == "__main__":
    main()
