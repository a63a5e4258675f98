"""Pre-train minilm further on books, and fine-tune it before and after.

    python benchmarks/adaptation.py --steps 500 2000 --folder adapted --write benchmarks/NOTES.md

The books are a part of the corpus; the masked-LM and next-sentence heads of minilm are new.  Each
side is fine-tuned on RTE, which has nothing to do with books, and on passages of books that it has
not read: was the book written before 1890?  The passages of an author are all in the train part or
all in the dev part.  Each book gives equally many at most.

Turns, --out and the dev metric are as in glue.py.  --folder keeps the corpus and the adapted
weights, and a stopped run continues from there; without it the script makes them again.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from glue import TASKS as GLUE
from side_by_side import DATA, Job, flags, measured_in_turn, show, table_of_scores

from tidybert.files.read_options import ReadOptions
from tidybert.timing.finetuning_speed import measure
from tidybert.timing.work import FinetuningWork

READ: Final = "corpus/books-00.txt.xz"
LABELLED: Final = "corpus/books-01.txt.xz"
HELD_OUT: Final = 0.1  # share of the training books

YEAR: Final = 1890
FIRST_YEAR: Final = 1700  # older books are mostly translations
NUM_PASSAGES: Final = 30  # of each book
NUM_WORDS: Final = 80  # of each passage
DEV_AUTHORS: Final = 3  # every third author's books

TASKS: Final = {
    "RTE": GLUE["RTE"],
    "age of a book": Job(
        "classify",
        LABELLED,
        LABELLED,
        ReadOptions(text="text", label="label"),
        ("accuracy",),
        num_train_epochs=2,
    ),
}


def prepared(name: str, work: FinetuningWork, folder: Path) -> FinetuningWork:
    """The work on one task; the passages, which no file holds, go into ``folder``."""
    if name == "RTE":
        return work
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    write_passages(Path(work.train), train, dev)
    return replace(work, train=str(train), dev=str(dev))


def write_passages(books: Path, train: Path, dev: Path) -> None:
    """Write the passages of a file of books as JSON lines, split by author."""
    from tidybert.corpus.documents import read_documents

    found: dict[str, list[dict[str, str]]] = {}
    for book in read_documents([books]):
        about = dict(line.split(": ", 1) for line in book[:3])
        year = about["Year"]
        if not year.isdecimal() or int(year) < FIRST_YEAR:
            continue
        label = "before" if int(year) < YEAR else "after"
        texts = spread(list(passages(book[3:])), NUM_PASSAGES)
        found.setdefault(about["Author"], []).extend(
            {"text": text, "label": label} for text in texts
        )
    parts: dict[Path, list[dict[str, str]]] = {train: [], dev: []}
    for number, author in enumerate(sorted(found), start=1):
        parts[train if number % DEV_AUTHORS else dev] += found[author]
    for path, lines in parts.items():
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def passages(paragraphs: Iterable[str]) -> Iterator[str]:
    """Join consecutive paragraphs until they have enough words, and cut the rest."""
    words: list[str] = []
    for paragraph in paragraphs:
        words += paragraph.split()
        if len(words) >= NUM_WORDS:
            yield " ".join(words[:NUM_WORDS])
            words = []


def spread(items: Sequence[str], count: int) -> list[str]:
    """At most ``count`` of the items, evenly spread."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def adapted(
    model: str, books: Path, folder: Path, steps: int, tokens_per_step: int, learning_rate: float
) -> Path:
    """The RUN after this many steps on books; an unfinished one is resumed."""
    from tidybert.corpus.building import build_corpus
    from tidybert.pretraining.pretraining_arguments import PretrainingArguments
    from tidybert.pretraining.pretraining_run import pretrain
    from tidybert.tokenization import BertTokenizer
    from tidybert.training.reports import TrainingCallbacks
    from tidybert.training.run_directory import is_finished

    shards, run = folder / "corpus", folder / f"steps-{steps}"
    if is_finished(run):
        return run
    build_corpus([books], BertTokenizer.from_pretrained(model), shards, held_out=HELD_OUT)
    arguments = PretrainingArguments(
        max_steps=steps,
        tokens_per_step=tokens_per_step,
        learning_rate=learning_rate,
        long_share=0.0,
    )
    pretrain(
        model,
        shards,
        run,
        arguments,
        resume=run.exists(),
        device="cpu",
        callbacks=TrainingCallbacks(
            note=lambda line: print(line, flush=True),
            metrics=lambda step, found: print(step, json.dumps(found), flush=True),
        ),
    )
    return run


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = flags(__doc__, TASKS, "adaptation")
    parser.add_argument("--steps", type=int, nargs="+", default=[1000], help="pre-training steps")
    parser.add_argument("--tokens-per-step", type=int, default=8192)
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="pre-training rate")
    parser.add_argument("--corpus", type=Path, default=DATA / READ, help="the books to train on")
    parser.add_argument("--folder", type=Path, help="keep corpus and weights in this folder")
    arguments = parser.parse_args()
    model = arguments.model
    sides = {model: 0, **{f"{model} + {steps} steps": steps for steps in arguments.steps}}

    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))

        @cache
        def weights(steps: int) -> str:
            if not steps:
                return str(model)
            rate = arguments.learning_rate
            run = adapted(model, arguments.corpus, folder, steps, arguments.tokens_per_step, rate)
            return str(run)

        def measured(side: str, work: FinetuningWork) -> Mapping[str, Any]:
            return measure("ours", replace(work, model=weights(sides[side])))

        results = measured_in_turn(arguments, TASKS, list(sides), prepared, measured)
    show(table_of_scores(TASKS, results, list(sides)), arguments.write, "adaptation")


if __name__ == "__main__":
    main()
