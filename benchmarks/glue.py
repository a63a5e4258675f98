"""Fine-tune on GLUE with tidybert and transformers: same weights, examples, order and arguments.

    python benchmarks/glue.py --seeds 3 --out glue.jsonl --write docs/results.md

The sides take turns.  Each measurement is a process of its own and a line of --out; a stopped run
continues from there.  The data folder is TIDYBERT_DATA or ../shared/data.  Both sides are scored
with their last weights: neither chooses its best step on the data that measures it.

    python benchmarks/glue.py --same-start --seeds 1 --write benchmarks/NOTES.md

gives both sides the same first head, and no dropout (side_by_side.py).
"""

from side_by_side import Job, run

from tidybert.files.read_options import PUBLISHED_LAYOUTS

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


def main() -> None:
    """Measure what --out lacks, then print the table."""
    run(__doc__, TASKS, "glue")


if __name__ == "__main__":
    main()
