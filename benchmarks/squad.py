"""Answer questions with tidybert and transformers: same weights, windows, order and arguments.

    python benchmarks/squad.py --seeds 3 --out squad.jsonl --write docs/results.md

``shifts`` trains on questions on Wikipedia and Reddit and is measured on reviews, an unseen kind of
text (SQuADShifts).  ``2.0`` trains on some articles of SQuAD 2.0 and is measured on the others.
Half the questions of 2.0 have no answer, and a model learns only that from this few.  So both sides
begin 2.0 with the weights, head included, that tidybert learned on ``shifts`` with the same seed.
That training is not timed.

``transformers`` follows its example run_qa.py: windows of a fast tokenizer, Trainer.  It takes our
batches in our order, padded to the longest of a batch, which is quicker than that script's default
of --max-seq-length.  Our decoder reads both sides' logits, with the threshold 0 for no answer;
best_f1 is that of the best threshold for these very questions.

Turns and --out are as in glue.py.  Run it from the project's root.  The data folder is
TIDYBERT_DATA or ../shared/data.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from tidybert.files.read_options import ReadOptions
from tidybert.tasks.questions.question_files import QuestionExample, read_questions
from tidybert.timing.finetuning_speed import measure
from tidybert.timing.measuring import answer, run_apart
from tidybert.timing.setting import SIDES
from tidybert.timing.transformers_side import train_with_transformers
from tidybert.timing.work import FinetuningWork

DATA: Final = Path(os.environ.get("TIDYBERT_DATA", "../shared/data")) / "squad"
SCORES: Final = {"shifts": ("exact_match", "f1"), "2.0": ("exact_match", "f1", "best_f1")}
NUM_EXAMPLES: Final = {"shifts": 2000, "2.0": 1600}
NUM_TEST: Final = 1000
TEST_SHARE: Final = 0.3  # of the articles of SQuAD 2.0


def parts_of(name: str) -> tuple[list[QuestionExample], list[QuestionExample]]:
    """All questions to train on and to test on, in the order of their ids' hashes."""

    def read(*files: str) -> list[QuestionExample]:
        found = [one for file in files for one in read_questions(DATA / file, need_label=True)]
        return sorted(found, key=lambda one: share_of(one.id))

    if name == "shifts":
        return (
            read("new_wiki_v1.0.json", "reddit_v1.0.json"),
            read("amazon_reviews_v1.0.json"),
        )
    questions = read("dev-v2.0-half.json")
    train = [one for one in questions if share_of(one.title) >= TEST_SHARE]
    test = [one for one in questions if share_of(one.title) < TEST_SHARE]
    return train, test


def share_of(text: str) -> float:
    """A number from 0 to 1 that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def write_questions(path: Path, questions: Iterable[QuestionExample]) -> None:
    """Write one JSON object a line."""
    lines = (
        {
            "id": one.id,
            "question": one.question,
            "context": one.context,
            "answers": [{"text": text, "answer_start": start} for text, start in one.answers],
        }
        for one in questions
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def prepared(name: str, work: FinetuningWork, folder: Path) -> FinetuningWork:
    """The work on one data set, whose parts are written to ``folder``."""
    train, test = parts_of(name)
    write_questions(folder / "train.jsonl", train[: NUM_EXAMPLES[name]])
    write_questions(folder / "test.jsonl", test[:NUM_TEST])
    return replace(
        work,
        model=f"{learned_on_shifts(work).name}/run" if name == "2.0" else work.model,
        train=str(folder / "train.jsonl"),
        dev=str(folder / "test.jsonl"),
        max_seq_length=384,
        train_batch_size=4,
    )


@cache
def learned_on_shifts(work: FinetuningWork) -> tempfile.TemporaryDirectory[str]:
    """The model that tidybert trains on ``shifts``, in a folder that is removed at exit."""
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.run_job import run_finetuning

    run = tempfile.TemporaryDirectory()
    with tempfile.TemporaryDirectory() as folder:
        work = prepared("shifts", work, Path(folder))
        task, train, _ = replace(work, dev=None).read()
    run_finetuning(
        FinetuningJob(
            task,
            work.model,
            train,
            None,
            work.arguments(),
            max_seq_length=work.max_seq_length,
            out=Path(run.name) / "run",
            device="cpu",
        )
    )
    return run


def run_transformers(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """transformers' measurement, in the process that was started for it."""
    import torch
    import transformers

    from tidybert.catalog import find_model
    from tidybert.tasks.questions.question_answering import QuestionAnswering
    from tidybert.tokenization import BertTokenizer

    assert side == "transformers"
    work = FinetuningWork.from_dict(given)
    assert work.dev is not None
    transformers.utils.logging.set_verbosity_error()
    train = list(read_questions(work.train, need_label=True))
    test = list(read_questions(work.dev, need_label=True))
    task = QuestionAnswering.from_examples(train)
    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    transformers.set_seed(work.seed)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(directory)
    collate = transformers.DataCollatorWithPadding(tokenizer)
    result = train_with_transformers(
        model, windows(train, tokenizer, task, work), list, collate, work
    )
    # Our decoder takes our windows, which equal theirs.
    features = task.features(test, BertTokenizer.from_pretrained(directory), work.max_seq_length)
    encoded = windows(test, tokenizer, task, work)
    assert [one["input_ids"] for one in encoded] == [one.input_ids.tolist() for one in features]
    model.eval()
    outputs = []
    with torch.inference_mode():
        for start in range(0, len(encoded), 16):
            chunk = encoded[start : start + 16]
            found = model(**collate(chunk))
            logits = torch.stack((found.start_logits, found.end_logits), dim=2).numpy()
            outputs += [
                rows[: len(one["input_ids"])] for rows, one in zip(logits, chunk, strict=True)
            ]
    return {"metrics": task.answers(outputs, features, test).metrics(), **result}


def windows(
    examples: Sequence[QuestionExample], tokenizer: Any, task: Any, work: FinetuningWork
) -> list[dict[str, Any]]:
    """The model's windows, with the rows of the first right answer, or of [CLS] without one."""
    from tidybert.data.long_texts import DEFAULT_DOC_STRIDE

    made = []
    for example in examples:
        question = tokenizer(example.question, add_special_tokens=False)["input_ids"]
        # A cut question becomes the text that its tokens cover.
        asked = example.question
        if len(question) > task.max_query_length:
            offsets = tokenizer(asked, add_special_tokens=False, return_offsets_mapping=True)[
                "offset_mapping"
            ]
            asked = asked[: offsets[task.max_query_length - 1][1]]
        room = work.max_seq_length - min(len(question), task.max_query_length) - 3
        encoded = tokenizer(
            asked,
            example.context,
            truncation="only_second",
            max_length=work.max_seq_length,
            # transformers' stride is the overlap of two windows.
            stride=room - DEFAULT_DOC_STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for number, offsets in enumerate(encoded["offset_mapping"]):
            start, end = rows_of_answer(example, offsets, encoded.sequence_ids(number))
            made.append(
                {
                    "input_ids": encoded["input_ids"][number],
                    "token_type_ids": encoded["token_type_ids"][number],
                    "attention_mask": encoded["attention_mask"][number],
                    "start_positions": start,
                    "end_positions": end,
                }
            )
    return made


def rows_of_answer(
    example: QuestionExample, offsets: Sequence[tuple[int, int]], sequences: Sequence[int | None]
) -> tuple[int, int]:
    """The first and the last row of the answer, or 0 and 0 if the window cuts it."""
    rows = [row for row, sequence in enumerate(sequences) if sequence == 1]
    if not example.answers or not rows:
        return 0, 0
    text, begin = example.answers[0]
    end = begin + len(text)
    if offsets[rows[0]][0] > begin or offsets[rows[-1]][1] < end:
        return 0, 0
    covering = [row for row in rows if offsets[row][1] > begin and offsets[row][0] < end]
    return covering[0], covering[-1]


def measured(side: str, work: FinetuningWork) -> Mapping[str, Any]:
    """One side's measurement, in a process of its own."""
    if side == "ours":
        return measure(side, work)
    found: dict[str, Any] = run_apart("benchmarks.squad", side, asdict(work), work.threads)
    return found


def main() -> None:
    """Measure what --out lacks, then print the table."""
    # A measurement's process runs this file as a module, which cannot import its neighbour.
    from side_by_side import Job, run

    jobs = {
        name: Job("answer", "", "", ReadOptions(), scores, learning_rate=3e-4)
        for name, scores in SCORES.items()
    }
    run(__doc__, jobs, "squad", prepared, measured)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in SIDES:
        answer(run_transformers)
    else:
        main()
