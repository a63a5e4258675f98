"""Choose endings with tidybert and transformers: same weights, examples, order and arguments.

    python benchmarks/choice.py --seeds 3 --out choice.jsonl --write docs/results.md

CODAH has four endings a sentence.  ``transformers`` follows its example run_swag.py: pairs of
context and ending, DataCollatorForMultipleChoice, AutoModelForMultipleChoice, Trainer.  Turns,
--out and the dev metric are as in glue.py.  A guess is right in a quarter of the examples.  CODAH's
authors wrote the sentences to mislead.
"""

from side_by_side import Job, run

from tidybert.files.read_options import ReadOptions

TASKS = {
    "CODAH": Job(
        "choose",
        "choice/codah/train.tsv",
        "choice/codah/dev.tsv",
        ReadOptions(format="codah"),
        ("accuracy",),
        num_train_epochs=3,
    )
}


def main() -> None:
    """Measure what --out lacks, then print the table."""
    run(__doc__, TASKS, "choice")


if __name__ == "__main__":
    main()
