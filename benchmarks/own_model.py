"""What the weights of tidybert-mini are worth: fine-tuned, beside the same size without them.

    python benchmarks/own_model.py --seeds 3 --out own_model.jsonl --write docs/own-model.md

``random`` begins with random weights in the same shape, with the same vocabulary, and takes the
same examples in the same order.  Turns, --out and the dev metric are as in glue.py; CoNLL-2003 is
measured on its test part.  SST-2, STS-B and CoNLL-2003 are trained on a part, so that a run takes
a few minutes on two cores.

The table has the published figures of the same size and of the next smaller one besides (Turc et
al. 2019, as google-research/bert lists them).  They are no counterpart: those models were
pre-trained on far more text, fine-tuned on all of each train part for four epochs with the best of
several rates and batch sizes, and measured on GLUE's test parts.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from glue import TASKS as GLUE
from side_by_side import Job, flags, measured_in_turn, show, table_of_scores

from tidybert.files.read_options import ReadOptions
from tidybert.timing.finetuning_speed import FinetuningWork, measure

# The highest of the rates that the published models of this size were tuned over.
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
    """Write a MODEL with the shape and the vocabulary of another, and random weights."""
    import torch

    from tidybert.checkpoints.metadata import ModelMetadata
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.model_saving import save_model_directory
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
    """What one side scores, in how many seconds and with how much memory."""
    if side == work.model:
        return measure("ours", work)
    with tempfile.TemporaryDirectory() as folder:
        random_like(work.model, work.seed, Path(folder))
        return measure("ours", replace(work, model=folder))


def main() -> None:
    """Measure what --out does not hold yet, then print the table."""
    parser = flags(__doc__, TASKS, "own_model")
    parser.set_defaults(model="tidybert-mini")
    arguments = parser.parse_args()
    sides = sides_of(arguments.model)
    results = measured_in_turn(arguments, TASKS, sides, lambda _name, work, _folder: work, measured)
    show(table_of_scores(TASKS, results, sides, PUBLISHED), arguments.write, "own_model")


if __name__ == "__main__":
    main()
