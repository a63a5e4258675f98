"""What int8 costs in scores: a job is trained once, and its test part answered in both precisions.

    python -m benchmarks int8 --write docs/performance.md

A job trains on MODEL as ``compare`` does, on --num-examples of its training part at most.  Each
measurement is a line of --out, and a stopped run continues from there.
"""

from functools import partial
from typing import Any, Final

from benchmarks.harness.datasets import JOBS
from benchmarks.harness.rounds import at_least
from benchmarks.harness.tables import Results, markdown, results_parser, show
from benchmarks.speed.finetune import metrics_of
from benchmarks.speed.finetune_work import work_of
from tidybert.errors import TidyBertError
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.modeling.kernels.answer_layers import use_int8

DATA: Final = ("SST-2", "MRPC", "STS-B", "CoNLL-2003", "shifts")
PRECISIONS: Final = ("float32", "int8")


def measured(name: str, model: str, num_examples: int, seed: int) -> dict[str, Any]:
    """The first metric of a job in both precisions, by one trained model."""
    work = work_of(name, model, seed=seed)
    task, train, test = work.read()
    arguments, length = work.arguments(), work.max_seq_length
    train = train[:num_examples]
    job = FinetuningJob(task, model, train, None, arguments, max_seq_length=length, device="cpu")
    trained = run_finetuning(job)
    found = {"float32": metrics_of(trained, task, test)}
    obstacle = use_int8(trained.model)
    if obstacle is not None:
        raise TidyBertError(f"int8 cannot be measured here, because {obstacle}")
    found["int8"] = metrics_of(trained, task, test)
    return {"num_examples": len(train), "num_test": len(test), "metrics": found}


def table(results: Results) -> list[str]:
    """Markdown rows: both scores in percent and what int8 loses, in points."""
    rows = []
    for line in results.lines:
        metric = JOBS[line["data"]].metrics[0]
        exact, rounded = (100 * line["metrics"][each][metric] for each in PRECISIONS)
        figures = (f"{each:.2f}" for each in (exact, rounded, exact - rounded))
        rows.append([f"{line['data']}, {metric}", f"{line['num_test']:,}", *figures])
    return markdown(["", "examples", *PRECISIONS, "loss"], rows)


def main() -> None:
    parser = results_parser(__doc__, "int8")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=JOBS)
    parser.add_argument("--num-examples", type=at_least(1), default=3200, help="to train on")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    results = Results(given.out)
    for name in given.data:
        key = {"data": name, "model": given.model, "seed": given.seed}
        results.take(key, partial(measured, name, given.model, given.num_examples, given.seed))
    show(table(results), given.write, "int8-scores")
