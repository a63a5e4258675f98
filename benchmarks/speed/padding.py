"""Count the padded cells of padded batches: what rows without padding save.

    python -m benchmarks padding --write benchmarks/NOTES.md

Batches are those of compare glue and compare text: texts cut at 128 tokens, 32 a batch in the first
seed's order, padded to the longest of the batch.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness.datasets import GROUPS
from benchmarks.harness.tables import markdown, results_parser, show
from benchmarks.speed.finetune_work import work_of
from tidybert import BertTokenizer


def rows(model: str) -> Iterator[list[str]]:
    """A row for each task in the language of the model's vocabulary."""
    tokenizer = BertTokenizer.from_pretrained(model)
    for name in (*GROUPS["glue"], *GROUPS["text"]):
        if name == "ChnSentiCorp":
            continue
        work = work_of(name, model, is_scored=False)
        task, train, _ = work.read()
        features = task.features(train, tokenizer, work.max_seq_length)
        lengths = np.array([len(one.input_ids) for one in features])
        padded = sum(lengths[batch].max() * len(batch) for batch in work.batches(len(lengths)))
        cells = padded / (lengths.sum() * work.num_train_epochs)
        yield [name, f"{len(lengths):,}", f"{lengths.mean():.1f}", f"{cells:.2f}"]


def main() -> None:
    given = results_parser(__doc__, None).parse_args()
    heads = ["task", "examples", "tokens an example", "padded cells a token"]
    show(markdown(heads, rows(given.model)), given.write, "padding")
