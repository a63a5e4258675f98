"""Fine-tune tidybert-mini, and the same size with random weights.

    python benchmarks/own_model.py --seeds 3 --out own_model.jsonl --write docs/own-model.md

``random`` has the same shape and vocabulary, and takes the same examples in the same order.  Turns,
--out and the dev metric are as in glue.py; CoNLL-2003 is measured on its test part.  SST-2, STS-B
and CoNLL-2003 are trained on a part, so that a run takes a few minutes on two cores.

The table also has the published figures of this size and the next smaller one (Turc et al. 2019, as
google-research/bert lists them).  They are not a like-for-like comparison.  Those models
were pre-trained on far more text and fine-tuned on all of each train part for four epochs.  They
had the best of several rates and batch sizes, and were measured on GLUE's test parts.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from glue import TASKS as GLUE
from side_by_side import Job, flags, measured_in_turn, show, table_of_scores

from tidybert.files.read_options import ReadOptions
from tidybert.timing.finetuning_speed import measure
from tidybert.timing.work import FinetuningWork

# The highest rate that the published models of this size tried.
LEARNING_RATE: Final = 3e-4
TASKS: Final = {
    name: replace(job, learning_rate=LEARNING_RATE)
    for name, job in {
        "SST-2": replace(GLUE["SST-2"], num_examples=20_000, num_train_epochs=1),
        "MRPC": replace(GLUE["MRPC"], num_train_epochs=3),
        "RTE": replace(GLUE["RTE"], num_train_epochs=3),
        "STS-B": replace(GLUE["STS-B"], num_examples=2880, num_train_epochs=3),
        "CoNLL-2003": Job(
            "tag",
            "ner/conll2003/train.txt",
            "ner/conll2003/test.txt",
            ReadOptions(),
            ("f1",),
            num_examples=6400,
            num_train_epochs=3,
        ),
    }.items()
}
PUBLISHED: Final = {
    "BERT tiny": {
        ("SST-2", "accuracy"): 83.2,
        ("MRPC", "accuracy"): 71.1,
        ("MRPC", "f1"): 81.1,
        ("RTE", "accuracy"): 57.2,
        ("STS-B", "pearson"): 74.3,
        ("STS-B", "spearman"): 73.6,
    },
    "BERT mini": {
        ("SST-2", "accuracy"): 85.9,
        ("MRPC", "accuracy"): 71.8,
        ("MRPC", "f1"): 81.1,
        ("RTE", "accuracy"): 57.9,
        ("STS-B", "pearson"): 75.4,
        ("STS-B", "spearman"): 73.3,
    },
}


def random_like(model: str, seed: int, directory: Path) -> None:
    """Write a MODEL with random weights, and the shape and vocabulary of another."""
    import torch

    from tidybert.checkpoints.metadata import ModelMetadata
    from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
    from tidybert.modeling import BertModel

    origin = ModelDirectory.open(model)
    torch.manual_seed(seed)
    save_model_directory(
        directory,
        model_state=BertModel(origin.config).state_dict(),
        config=origin.config,
        tokenizer=origin.tokenizer,
        metadata=ModelMetadata(task="pretrain"),
        architecture=BertModel.__name__,
    )


def sides_of(model: str) -> tuple[str, str]:
    """The names of both sides: the MODEL, and its shape with random weights."""
    return model, f"random, as {model}"


def measured(side: str, work: FinetuningWork) -> Mapping[str, Any]:
    """One side's scores, seconds and memory."""
    if side == work.model:
        return measure("ours", work)
    with tempfile.TemporaryDirectory() as folder:
        random_like(work.model, work.seed, Path(folder))
        return measure("ours", replace(work, model=folder))


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = flags(__doc__, TASKS, "own_model")
    parser.set_defaults(model="tidybert-mini")
    arguments = parser.parse_args()
    sides = sides_of(arguments.model)
    results = measured_in_turn(arguments, TASKS, sides, lambda _name, work, _folder: work, measured)
    show(table_of_scores(TASKS, results, sides, PUBLISHED), arguments.write, "own_model")


if __name__ == "__main__":
    main()
