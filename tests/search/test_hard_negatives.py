"""Mining finds the texts that sorting all cosines finds, and goes on after a stop."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.cli.main import run as shell
from tidybert.errors import DataError, UsageError, WeightsError
from tidybert.inference.embedding import Embedder
from tidybert.search.hard_negatives import HardNegatives, MiningOptions
from tidybert.system.reporter import Reporter
from tidybert.tasks.vectors.vector_examples import VectorExample

COLOURS = ("red", "blue", "green", "black")
ANIMALS = ("dog", "cat", "cow", "horse")
PAIRS = [
    VectorExample((f"the {c} {a}", f"we saw a {a} {c}"), None, n)
    for n, (c, a) in enumerate((c, a) for c in COLOURS for a in ANIMALS)
]


@pytest.fixture
def embedder(tiny_model: Path) -> Embedder:
    return Embedder(tiny_model, normalize=True)


def mined(embedder: Embedder, pairs: Any = PAIRS, **given: Any) -> list[list[str]]:
    texts = [one.texts[1] for one in pairs] + ["the red dog"]
    return HardNegatives(embedder, "", texts, pairs, MiningOptions(**given)).of(pairs)


@pytest.mark.parametrize(
    ("first", "last", "margin"), [(1, 100, 0.0), (3, 6, 0.0), (1, 100, 0.02), (2, 9, 0.3)]
)
def test_it_finds_what_sorting_all_cosines_finds(
    first: int, last: int, margin: float, embedder: Embedder
) -> None:
    found = mined(embedder, first_rank=first, last_rank=last, margin=margin, num_negatives=3)

    texts = [*(one.texts[1] for one in PAIRS), "the red dog"]
    vectors = embedder.embed(texts)
    for one, negatives in zip(PAIRS, found, strict=True):
        cosines = vectors @ embedder.embed([one.texts[0]])[0]
        right = cosines[texts.index(one.texts[1])]
        ranked = [at for at in np.argsort(-cosines) if texts[at] not in one.texts]
        expected = [
            texts[at] for at in ranked[first - 1 : last] if cosines[at] <= right - margin * right
        ]
        assert negatives == expected[:3]


def test_all_that_belongs_to_a_query_is_no_negative(embedder: Embedder) -> None:
    pairs = [VectorExample(("the red dog", one.texts[1]), None, 1) for one in PAIRS[:8]]
    pairs += [VectorExample(("a cat", PAIRS[9].texts[1]), None, 2)]

    found = mined(embedder, pairs, margin=0.0)

    assert all(set(each) <= {PAIRS[9].texts[1]} for each in found[:8])


def test_a_file_that_finetune_reads(tiny_model: Path, tmp_path: Path, capsys: Any) -> None:
    queries, out = tmp_path / "pairs.jsonl", tmp_path / "mined.jsonl"
    rows = [{"anchor": one.texts[0], "positive": one.texts[1]} for one in PAIRS]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["mine", str(tiny_model), "--queries", str(queries), "--out", str(out)]

    assert shell([*command, "--num-negatives", "2", "--margin", "0"]) == 0

    told = capsys.readouterr().err
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["anchor"], one["positive"]) for one in lines] == [one.texts for one in PAIRS]
    short = sum(len(one["negatives"]) == 1 for one in lines)
    none = sum(not one["negatives"] for one in lines)
    assert f"{short} have fewer than 2 negatives, and {none} have none" in told
    flags = ["--train", str(out), "--dev", str(out), "--out", str(tmp_path / "run")]
    flags += ["--max-steps", "1", "--max-seq-length", "16"]
    assert shell(["finetune", "embed", str(tiny_model), *flags]) == 0


def test_a_stopped_run_goes_on_to_the_same_bytes(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidybert.search.hard_negatives._QUERIES_AT_ONCE", 4)
    monkeypatch.setattr("tidybert.storage.part_file.SECONDS_BETWEEN_SAVES", 0.0)
    texts = [one.texts[1] for one in PAIRS]

    def write(
        name: str, resume: bool, stop_at: int | None = None, pairs: Any = PAIRS, texts: Any = texts
    ) -> bytes:
        def advance(num_done: int) -> None:
            if stop_at is not None and num_done >= stop_at:
                raise KeyboardInterrupt

        negatives = HardNegatives(embedder, "", texts, pairs, MiningOptions(margin=0.0))
        negatives.write(pairs, tmp_path / name, resume=resume, reporter=Reporter(advance=advance))
        return (tmp_path / name).read_bytes()

    whole = write("whole", False)
    with pytest.raises(KeyboardInterrupt):
        write("cut", False, stop_at=8)
    assert not (tmp_path / "cut").exists()
    # A file that changed since, though its first rows and its length are the same.
    last = VectorExample((PAIRS[-1].texts[0], PAIRS[0].texts[1]), None, PAIRS[-1].row)
    with pytest.raises(UsageError, match=r"was begun with other settings; .*\n  the pairs: not"):
        write("cut", True, pairs=[*PAIRS[:-1], last])
    with pytest.raises(UsageError, match=r"\n  the texts: not .*\n  the pairs: not"):
        write("cut", True, texts=[*texts[:-1], "another text"])
    assert write("cut", True) == whole


@pytest.mark.parametrize(
    "given",
    [{"num_negatives": 0}, {"first_rank": 5, "last_rank": 4}, {"first_rank": 0}, {"margin": 1.0}],
)
def test_options_that_select_nothing(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        MiningOptions(**given)


def test_one_text_has_no_negatives(embedder: Embedder) -> None:
    with pytest.raises(DataError, match="fewer than two different texts"):
        HardNegatives(embedder, "", ["a", "a"], PAIRS, MiningOptions())


def test_vectors_that_are_not_finite_are_refused(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Embedder, rows: Any, _pooling: Any) -> torch.Tensor:
        return torch.full((len(rows.lengths), self.dimension), torch.nan)

    monkeypatch.setattr(Embedder, "_vectors", broken)
    negatives = HardNegatives(embedder, "", [one.texts[1] for one in PAIRS], PAIRS, MiningOptions())

    with pytest.raises(WeightsError, match="outputs are not finite"):
        negatives.write(PAIRS, tmp_path / "hard.jsonl")

    assert list(tmp_path.iterdir()) == []
