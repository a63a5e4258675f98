"""Fine-tune on GLUE tasks beside transformers: same weights, examples, order and arguments.

    python benchmarks/glue.py --seeds 3 --out glue.jsonl --write docs/results.md

The sides take turns, each measurement in a process of its own and on one line of --out; a run that
was stopped goes on from there.  The data folder is TIDYBERT_DATA or ../shared/data.  The dev metric
is that of the last weights on both sides: neither chooses its best step on the data that it is
measured on.

    python benchmarks/glue.py --same-start --seeds 1 --out same.jsonl --write docs/results.md

takes away what the two draw each for itself, the head's first weights and dropout: what is left to
differ between their scores is rounding.
"""

from dataclasses import replace
from pathlib import Path

from side_by_side import Job, flags, measured_in_turn, show, table

from tidybert.benchmark.finetuning import SIDES, FinetuningWork, measure, read_work
from tidybert.data.options import PUBLISHED_LAYOUTS

TASKS = {
    "SST-2": Job(
        "classify",
        "glue/SST-2/train.tsv",
        "glue/SST-2/dev.tsv",
        PUBLISHED_LAYOUTS["glue/SST-2/*.tsv"],
        ("accuracy",),
        num_examples=3200,
    ),
    "MRPC": Job(
        "classify",
        "glue/MRPC/msr-para-train.tsv",
        "glue/MRPC/msr-para-val.tsv",
        PUBLISHED_LAYOUTS["glue/MRPC/*.tsv"],
        ("accuracy", "f1"),
    ),
    "STS-B": Job(
        "regress",
        "glue/STS-B/sts-train.csv",
        "glue/STS-B/sts-dev.csv",
        PUBLISHED_LAYOUTS["glue/STS-B/*.csv"],
        ("pearson", "spearman"),
        num_examples=2880,
    ),
    "RTE": Job(
        "classify",
        "glue/RTE/train.tsv",
        "glue/RTE/dev.tsv",
        PUBLISHED_LAYOUTS["glue/RTE/*.tsv"],
        ("accuracy",),
        num_train_epochs=3,
    ),
}


def with_one_start(_name: str, work: FinetuningWork, folder: Path) -> FinetuningWork:
    """The work on weights without dropout, with the head that tidybert draws for its seed."""
    import json
    import shutil

    from tidybert.checkpoints.metadata import METADATA_FILE
    from tidybert.finetuning import finetune
    from tidybert.pretrained import model_directory
    from tidybert.training.arguments import TrainingArguments

    without_dropout, start = folder / "without-dropout", folder / "start"
    # tidybert.json would tell that config.json is not the one that was saved.
    ignored = shutil.ignore_patterns(METADATA_FILE)
    shutil.copytree(model_directory(work.model), without_dropout, ignore=ignored)
    path = without_dropout / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path.write_text(json.dumps(config), encoding="utf-8")
    task, train, _ = read_work(replace(work, dev=None))
    # One step that moves no weight. The other side reads the head that the seed gave, and tidybert
    # draws it again.
    arguments = TrainingArguments(max_steps=1, learning_rate=1e-30, seed=work.seed)
    finetune(task, str(without_dropout), train, None, arguments, run=start, device="cpu")
    return replace(work, model=str(start))


def main() -> None:
    """Measure what --out does not hold yet, then print the table."""
    parser = flags(__doc__, TASKS, "glue")
    parser.add_argument("--same-start", action="store_true", help="one head, no dropout")
    arguments = parser.parse_args()
    prepare = with_one_start if arguments.same_start else lambda _name, work, _folder: work
    results = measured_in_turn(arguments, TASKS, SIDES, prepare, measure)
    mark = "same-start" if arguments.same_start else "glue"
    show(table(TASKS, results), arguments.write, mark)


if __name__ == "__main__":
    main()
