"""The data sets: a job each, its examples, and texts to time.

The data folder is TIDYBERT_DATA or ../shared/data; the tickets come with tidybert.
"""

import csv
import hashlib
import lzma
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import script
from tidybert.files.reading import ReadOptions
from tidybert.tasks.registry import task_class

TICKETS: Final = Path(str(files("tidybert"))) / "resources" / "tickets"
_ARTICLES: Final = 116
"""Of wikigold's 145 articles, those to train on."""
_TEST_SHARE: Final = 0.3
"""Of the articles of SQuAD 2.0, those to test on."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a comparison trains on a data set."""

    num_examples: int | None = None
    """From the first on; None for all."""
    num_train_epochs: int = 1
    learning_rate: float = 1e-4
    train_batch_size: int = 32
    max_seq_length: int = 128


@dataclass(frozen=True)
class Job(Settings):
    """A data set: TASK, its two parts under the data folder, and how it is trained and scored."""

    task: str
    train: str
    """Files, with spaces between them."""
    dev: str
    scores: str
    layout: str = ""
    """Of the files, by its name in LAYOUTS."""

    @property
    def metrics(self) -> list[str]:
        """The names of the scores in the table."""
        return self.scores.split()

    def files(self, part: str) -> list[Path]:
        """The files of a part, "train" or "dev"."""
        names = (self.train if part == "train" else self.dev).split()
        return [data_folder() / name for name in names]


def _subset(name: str, metrics: str) -> Job:
    """A labelled subset of a task of GLUE, which is not its dev part."""
    train, dev, layout = (f"glue/{name}/{each}" for each in (
        "subset-train.json", "subset-dev.json", "*.json"))  # fmt: skip
    return Job("classify", train, dev, metrics, layout, num_examples=3200)


PUBLISHED_LAYOUTS: Final = {
    "glue/SST-2/*.tsv": ReadOptions(text="sentence", label="label"),
    "glue/RTE/*.tsv": ReadOptions(text="sentence1", text_pair="sentence2", label="label"),
    "glue/QNLI/dev.tsv": ReadOptions(text="question", text_pair="sentence", label="label"),
    "glue/MRPC/*.tsv": ReadOptions(text="#1 String", text_pair="#2 String", label="Quality"),
    "glue/STS-B/*.csv": ReadOptions(text=5, text_pair=6, label=4, format="tsv"),
    "glue/QQP/*.json": ReadOptions(text="text_a", text_pair="text_b", label="label"),
    "glue/MNLI/*.json": ReadOptions(text="text_a", text_pair="text_b", label="label"),
    "glue/QNLI/*.json": ReadOptions(text="text_a", text_pair="text_b", label="label"),
    "text/sms_spam/SMSSpamCollection": ReadOptions(text=1, label=0, format="tsv"),
    "text/banking77/t*.csv": ReadOptions(text="text", label="category"),
    "text/trec/TREC.*.all": ReadOptions(format="label-text", encoding="latin-1"),
    "zh/chnsenticorp/*.tsv": ReadOptions(text="text_a", label="label"),
}
"""How public data sets are read as they were published: file patterns and their options."""
LAYOUTS: Final = {"": ReadOptions(), "codah": ReadOptions(format="codah"), **PUBLISHED_LAYOUTS}
_SPAM: Final = "text/sms_spam/SMSSpamCollection"
_BANKING: Final = "text/banking77/"
_WIKIGOLD: Final = "ner/wikigold/wikigold.conll.txt"
_SQUAD: Final = "squad/dev-v2.0-half.json"
_QUESTIONS: Final[dict[str, Any]] = {
    "learning_rate": 3e-4, "train_batch_size": 4, "max_seq_length": 384,
}  # fmt: skip
_TAGS: Final[dict[str, Any]] = {"num_train_epochs": 3, "learning_rate": 2e-4}
GROUPS: Final[dict[str, dict[str, Job]]] = {
    "glue": {
        "SST-2": Job("classify", "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", "accuracy",
                     "glue/SST-2/*.tsv", num_examples=3200),
        "MRPC": Job("classify", "glue/MRPC/msr-para-train.tsv", "glue/MRPC/msr-para-val.tsv",
                    "accuracy f1", "glue/MRPC/*.tsv"),
        "STS-B": Job("regress", "glue/STS-B/sts-train.csv", "glue/STS-B/sts-dev.csv",
                     "pearson spearman", "glue/STS-B/*.csv", num_examples=2880),
        "RTE": Job("classify", "glue/RTE/train.tsv", "glue/RTE/dev.tsv", "accuracy",
                   "glue/RTE/*.tsv", num_train_epochs=3),
    },
    "text": {
        "SMS spam": Job("classify", _SPAM, _SPAM, "accuracy f1", _SPAM),
        "BANKING77": Job("classify", f"{_BANKING}train.csv", f"{_BANKING}test.csv",
                         "accuracy macro_f1", f"{_BANKING}t*.csv", num_train_epochs=3),
        "TREC": Job("classify", "text/trec/TREC.train.all", "text/trec/TREC.test.all", "accuracy",
                    "text/trec/TREC.*.all"),
        "ChnSentiCorp": Job("classify", "zh/chnsenticorp/train.tsv", "zh/chnsenticorp/dev.tsv",
                            "accuracy", "zh/chnsenticorp/*.tsv", num_examples=3200),
        "QNLI subset": _subset("QNLI", "accuracy"),
        "MNLI subset": _subset("MNLI", "accuracy"),
        "QQP subset": _subset("QQP", "accuracy f1"),
    },
    "choice": {
        "CODAH": Job("choose", "choice/codah/train.tsv", "choice/codah/dev.tsv", "accuracy",
                     "codah", num_train_epochs=3),
    },
    "ner": {
        "CoNLL-2003": Job("tag", "ner/conll2003/train.txt", "ner/conll2003/test.txt",
                          "f1 precision recall", num_examples=3200, **_TAGS),
        "wikigold": Job("tag", _WIKIGOLD, _WIKIGOLD, "f1 precision recall", **_TAGS),
    },
    "squad": {
        "shifts": Job("answer", "squad/new_wiki_v1.0.json squad/reddit_v1.0.json",
                      "squad/amazon_reviews_v1.0.json", "exact_match f1", num_examples=2000,
                      **_QUESTIONS),
        "2.0": Job("answer", _SQUAD, _SQUAD, "exact_match f1 best_f1", num_examples=1600,
                   **_QUESTIONS),
    },
    "tickets": {
        "tickets": Job("classify", f"{TICKETS}/train.csv", f"{TICKETS}/dev.csv", "accuracy"),
    },
}  # fmt: skip
JOBS: Final = {name: job for group in GROUPS.values() for name, job in group.items()}


def data_folder() -> Path:
    """The folder of public data sets; it may lack some of them, or not be there."""
    return Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))


def examples_of(name: str, part: str) -> list[Any]:
    """All labelled examples of a part, "train" or "dev", of a job."""
    return list(_read(name, part, data_folder()))


@cache
def _read(name: str, part: str, _folder: Path) -> tuple[Any, ...]:
    job = JOBS[name]
    paths = job.files(part)
    with tempfile.TemporaryDirectory() as folder:
        if name == "wikigold":
            articles = paths[0].read_text(encoding="utf-8").split("-DOCSTART- O\n")
            articles = articles[:_ARTICLES] if part == "train" else articles[_ARTICLES:]
            paths = [Path(folder) / "articles.conll"]
            paths[0].write_text("\n".join(articles), encoding="utf-8")
        read, options = task_class(job.task).read, LAYOUTS[job.layout]
        found = [one for path in paths for one in read(str(path), options, need_label=True)]
    if name == "SMS spam":
        # It has no parts: every tenth message is for testing.
        found = [one for at, one in enumerate(found) if (at % 10 == 0) == (part == "dev")]
    if job.task == "answer":
        found = sorted(found, key=lambda one: share_of(one.id))
    if name == "2.0":
        found = [one for one in found if (share_of(one.title) < _TEST_SHARE) == (part == "dev")]
    # An answer takes long to find, so a thousand questions are tested.
    return tuple(found[:1000] if job.task == "answer" and part == "dev" else found)


def share_of(text: str) -> float:
    """A number from 0 to 1 that depends on the text only."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def drawn(examples: Sequence[Any], count: int, seed: int) -> list[Any]:
    """A random draw; all in another order where there are fewer."""
    order = np.random.default_rng(seed).permutation(len(examples))
    return [examples[at] for at in order[:count]]


# --- texts to time
def sst2_or_tickets() -> str:
    """The job whose texts are timed: SST-2, or the bundled tickets where it is not there."""
    if JOBS["SST-2"].files("dev")[0].exists():
        return "SST-2"
    script.note(
        "SST-2 is not in the data folder (TIDYBERT_DATA, or ../shared/data): timing the tickets"
    )
    return "tickets"


def wikipedia_lines(limit: int = 80_000) -> tuple[str, list[str]]:
    """(source, lines) of English Wikipedia, else of the bundled tickets, without blank lines."""
    corpus = data_folder() / "corpus" / "wiki-core-00.txt.xz"
    if corpus.exists():
        with lzma.open(corpus, "rt", encoding="utf-8") as file:
            lines = (line.rstrip("\n") for line in file)
            return str(corpus), list(islice(filter(None, lines), limit))
    with (TICKETS / "train.csv").open(encoding="utf-8", newline="") as file:
        return "bundled tickets", [row["text"] for row in islice(csv.DictReader(file), limit)]


_LONG_PARAGRAPH: Final = 200
_FEWEST_PARAGRAPHS, _MOST_PARAGRAPHS = 20, 50


def article_paragraphs(count: int) -> Iterator[tuple[str, str]]:
    """Long paragraphs of Wikipedia and the titles of their articles, as benchmarks topics says."""
    path = data_folder() / "corpus" / "wiki-core-00.txt.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        # An empty line ends an article.
        articles = (each.split("\n") for each in file.read().split("\n\n"))
    long = {
        title: [one for one in rest if len(one) >= _LONG_PARAGRAPH] for title, *rest in articles
    }
    titles = [title for title, found in long.items() if len(found) >= _FEWEST_PARAGRAPHS]
    for title in sorted(titles, key=share_of)[:count]:
        yield from ((text, title) for text in long[title][:_MOST_PARAGRAPHS])


def mixed_texts() -> tuple[str, list[str]]:
    """(source, texts): of SST-2 and English Wikipedia in turn, else the bundled tickets."""
    job = sst2_or_tickets()
    texts = [one.text for one in examples_of(job, "dev")]
    if job == "tickets":
        return job, texts
    _, lines = wikipedia_lines(len(texts))
    return "SST-2 and Wikipedia", [
        text for pair in zip(texts, lines, strict=False) for text in pair
    ]
