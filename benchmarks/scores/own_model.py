"""Fine-tune tidybert-mini, and the same size with random weights.

    python -m benchmarks own_model --seeds 3 --out own_model.jsonl --write docs/own-model.md

``random`` has the same shape and vocabulary, and takes the same examples in the same order.  Turns,
--out and the dev metric are as in compare; CoNLL-2003 is measured on its test part.  SST-2, STS-B
and CoNLL-2003 are trained on a part, so that a run takes a few minutes on two cores.

The table also has the published figures of this size and the next smaller one (Turc et al. 2019, as
google-research/bert lists them).  They are not a like-for-like comparison.  Those models were
pre-trained on far more text and fine-tuned on all of each train part for four epochs.  They had the
best of several rates and batch sizes, and were measured on GLUE's test parts.
"""

import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.tables import Results, results_parser, show
from benchmarks.scores.compare import (
    measured_apart,
    score_table,
    take_in_turn,
    write_random_model,
)
from benchmarks.speed.finetune_work import work_of
from tidybert.checkpoints.model_directory import ModelDirectory

# The highest rate that the published models of this size tried.
LEARNING_RATE: Final = 3e-4
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "SST-2": {"num_examples": 20_000, "num_train_epochs": 1},
    "MRPC": {"num_train_epochs": 3},
    "RTE": {"num_train_epochs": 3},
    "STS-B": {"num_examples": 2880, "num_train_epochs": 3},
    "CoNLL-2003": {"num_examples": 6400, "num_train_epochs": 3},
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


def main() -> None:
    parser = results_parser(__doc__, "own_model")
    parser.set_defaults(model="tidybert-mini")
    parser.add_argument("--tasks", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-steps", type=int, help="train at most this many steps")
    given = parser.parse_args()
    model, random = given.model, f"random, as {given.model}"

    def measured(side: str, name: str, seed: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            start = model
            if side == random:
                origin = ModelDirectory.open(model)
                directory = Path(folder) / "random"
                start = str(write_random_model(directory, origin.config, origin.tokenizer, seed))
            more = {"learning_rate": LEARNING_RATE, "max_steps": given.max_steps}
            work = work_of(name, start, seed=seed, **more, **SETTINGS[name])
            return measured_apart("ours", work)

    results = Results(given.out)
    take_in_turn(results, given.tasks, (model, random), given.seeds, measured)
    sides = {side: side for side in (model, random)}
    table = score_table(
        list(SETTINGS),
        results.lines,
        sides,
        compared=list(sides),
        timed=False,
        published=PUBLISHED,
    )
    show(table, given.write, "own_model")
