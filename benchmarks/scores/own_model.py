"""Fine-tune tidybert-small and minilm, from which it began, on the same examples.

    python -m benchmarks own_model --seeds 3 --write docs/own-model.md

Both take tidybert's defaults.  Turns, --out and the dev metric are as in compare; CoNLL-2003 is
measured on its test part.  Each task is trained on a part, so that a run takes a few minutes on two
cores.
"""

from typing import Any, Final

from benchmarks.harness.tables import Results, results_parser, show
from benchmarks.scores.compare import DEFAULTS, measured_apart, score_table, take_in_turn
from benchmarks.speed.finetune_work import work_of

ORIGIN: Final = "minilm"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "SST-2": {"num_examples": 20_000, "num_train_epochs": 1},
    "STS-B": {"num_examples": 2880, "num_train_epochs": 3},
    "CoNLL-2003": {"num_examples": 6400, "num_train_epochs": 3},
}


def main() -> None:
    parser = results_parser(__doc__, "own_model")
    parser.set_defaults(model="tidybert-small")
    parser.add_argument("--tasks", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-steps", type=int, help="train at most this many steps")
    given = parser.parse_args()

    def measured(model: str, name: str, seed: int) -> dict[str, Any]:
        changes = {"seed": seed, "max_steps": given.max_steps, **SETTINGS[name]}
        return measured_apart(DEFAULTS, work_of(name, model, **changes))

    results, models = Results(given.out), (given.model, ORIGIN)
    take_in_turn(results, given.tasks, models, given.seeds, measured)
    sides = {model: model for model in models}
    table = score_table(list(SETTINGS), results.lines, sides, compared=models, timed=False)
    show(table, given.write, "own_model")
