"""A small corpus that a tiny model can learn from, and a run over it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.corpus.building import build_corpus
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.pretraining.pretraining_job import PretrainingJob
from tidybert.pretraining.pretraining_run import run_pretraining
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BertTokenizer

COLOURS = ("red", "green", "blue", "white")
ANIMALS = ("cat", "dog", "cow", "hen")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Documents that each speak of one animal and one colour all along."""
    generator = random.Random(0)
    documents = []
    for _ in range(150):
        colour, animal = generator.choice(COLOURS), generator.choice(ANIMALS)
        sentence = f"the {colour} {animal} is near the {colour} {animal} and we saw a {animal}"
        documents.append("\n".join([sentence] * generator.randint(2, 6)))
    folder = tmp_path_factory.mktemp("corpus")
    text = folder / "text.txt"
    text.write_text("\n\n".join(f"{d}\nnew {n}" for n, d in enumerate(documents)) + "\n")
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([text], tokenizer, folder / "shards", held_out=0.1)
    return folder / "shards"


@pytest.fixture
def small(tiny_model: Path, corpus: Path) -> Callable[..., Any]:
    """Pre-trains the tiny model for 12 steps; keywords change any of it."""

    def run(out: Path, **given: Any) -> Any:
        names = PretrainingArguments.__dataclass_fields__
        arguments = {
            "recipe": "fast",
            "max_steps": 12,
            "tokens_per_step": 256,
            "micro_batch": 96,
            "eval_steps": 6,
            "eval_tokens": 512,
            "save_steps": 4,
            "learning_rate": 1e-2,
            "dropout": 0.1,
            "logging_steps": 1,
            **{name: given.pop(name) for name in list(given) if name in names},
        }
        reporter = given.pop("reporter", None) or Reporter()
        from tidybert.pretraining.batches.instance_options import InstanceOptions

        options = given.pop("instances", InstanceOptions(max_seq_length=32))
        processes = given.pop("processes", None)
        job = PretrainingJob(
            given.pop("model", tiny_model),
            given.pop("data", corpus),
            PretrainingArguments(**arguments),
            instances=options,
            out=out,
            device=given.pop("device", "cpu"),
            **given,
        )
        return run_pretraining(job, reporter, processes)

    return run
