"""The texts that the benches take by default: public data from the data folder, or the tickets.

The data folder is the environment's TIDYBERT_DATA, or ../shared/data.
"""

import csv
import lzma
import os
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Final

from tidybert.files.read_options import PUBLISHED_LAYOUTS, ReadOptions

TICKETS: Final = "bundled tickets"


def sst2_or_tickets(split: str) -> tuple[str, str, ReadOptions]:
    """(name, path, options) of SST-2's train or dev split, else of the bundled tickets."""
    path = _data_folder() / "glue" / "SST-2" / f"{split}.tsv"
    if path.exists():
        return f"SST-2 {split}", str(path), PUBLISHED_LAYOUTS["glue/SST-2/*.tsv"]
    return TICKETS, str(_tickets()), ReadOptions(text="text", label="label")


def find_lines(limit: int = 80_000) -> tuple[str, list[str]]:
    """(source, lines) of English Wikipedia, else of the bundled tickets, without blank lines."""
    corpus = _data_folder() / "corpus" / "wiki-core-00.txt.xz"
    if corpus.exists():
        with lzma.open(corpus, "rt", encoding="utf-8") as file:
            lines = (line.rstrip("\n") for line in file)
            return str(corpus), list(islice(filter(None, lines), limit))
    with _tickets().open(encoding="utf-8", newline="") as file:
        return TICKETS, [row["text"] for row in islice(csv.DictReader(file), limit)]


def _data_folder() -> Path:
    return Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))


def _tickets() -> Path:
    return Path(str(resources.files("tidybert") / "resources" / "tickets" / "train.csv"))
