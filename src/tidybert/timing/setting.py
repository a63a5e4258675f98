"""The setting of the benches: their sides and their texts.

The data folder is the environment's TIDYBERT_DATA, or ../shared/data.
"""

import csv
import importlib.util
import lzma
import os
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Final

from tidybert.catalog import find_model
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.files.read_options import PUBLISHED_LAYOUTS, ReadOptions
from tidybert.files.text_files import read_examples
from tidybert.inference.loading import fitting_length
from tidybert.storage.model_files import CONFIG_FILE

SIDES: Final = ("ours", "transformers")
LOADER_WORKERS: Final = 4
"""Processes that make transformers' batches for a GPU; a CPU has no core to spare for them."""
FLASH_SIDE: Final = "transformers-flash"
TICKETS: Final = "bundled tickets"


def sides_against(against: str | None, device: str | None = None) -> tuple[str, ...]:
    """The sides of a bench; UsageError where ``against`` is unknown or not installed.

    ``device``: of a training, where transformers may also run with the package flash-attn.
    """
    if against is None:
        return SIDES[:1]
    known = SIDES[1:] if device is None else (*SIDES[1:], FLASH_SIDE)
    if against not in known:
        raise UsageError(f"{param('against', against)}: expected {' or '.join(known)}")
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"{param('against', against)} needs {package}, which is not installed: "
                "pip install 'tidybert[bench]'"
            )
    if against == FLASH_SIDE and (
        device == "cpu" or importlib.util.find_spec("flash_attn") is None
    ):
        raise UsageError(
            f"{param('against', against)} needs {param('device', 'cuda')} and the package "
            "flash-attn: install it, or compare with transformers"
        )
    return SIDES


def attention_of(against: str | None) -> str:
    """The attn_implementation of transformers' side."""
    return "flash_attention_2" if against == FLASH_SIDE else "sdpa"


def max_seq_length_for(model: str, asked: int | None = None) -> int:
    """``asked``, or for None 128 tokens, or fewer where MODEL has fewer positions.

    Raises UsageError for more than MODEL has positions, and as ``find_model`` does.
    """
    config = BertConfig.from_file(find_model(model) / CONFIG_FILE)
    fitting = fitting_length(config, asked)
    return min(128, fitting) if asked is None else fitting


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


def mixed_texts() -> tuple[str, list[str]]:
    """(source, texts): of SST-2 dev and English Wikipedia in turn, else the bundled tickets."""
    source, path, options = sst2_or_tickets("dev")
    texts = [one.text for one in read_examples(path, options, need_label=False)]
    if source == TICKETS:
        return source, texts
    _, lines = find_lines(len(texts))
    pairs = zip(texts, lines, strict=False)
    return f"{source} and Wikipedia", [text for pair in pairs for text in pair]


def _data_folder() -> Path:
    return Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))


def _tickets() -> Path:
    return Path(str(resources.files("tidybert") / "resources" / "tickets" / "train.csv"))
