"""Labels that say how their text came to be labelled: the random ones measure, the others teach."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert import load_data
from tidybert.cli.main import run as shell
from tidybert.data.splits import drawn_split
from tidybert.finetuning.finetuning_job import FEWEST_DRAWN
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification


@pytest.fixture
def labels_file(tmp_path: Path, toy_examples: Callable[..., list[Any]]) -> Callable[..., Path]:
    """Writes a file of labels, of which the first ``num_random`` were drawn at random."""

    def write(count: int, num_random: int) -> Path:
        path = tmp_path / f"labels-{num_random}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "label", "drawn"])
            for at, one in enumerate(toy_examples(count)):
                drawn = "random" if at < num_random else "chosen"
                rows.writerow([f"{one.text} {at}", one.label, drawn])
        return path

    return write


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_every_format_reads_how_a_text_was_drawn(tmp_path: Path, suffix: str) -> None:
    import pandas

    path = tmp_path / f"a{suffix}"
    frame = pandas.DataFrame(
        {"text": list("abcd"), "label": list("xyxy"), "drawn": ["random", "chosen", "", "odd"]}
    )
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)

    found = load_data(str(path))

    assert [one.drawn for one in found] == ["random", "chosen", None, None]


def test_those_drawn_are_held_out_but_for_the_last_of_a_class_and_repeated_texts() -> None:
    labels = [["a"], ["b"], ["c"], ["a"], ["a"], ["b"]]
    texts = ["1", "2", "3", "4", "5", "2"]

    train, dev = drawn_split([0, 1, 2, 3], 0.5, seed=1, texts=texts, labels=labels)

    # c has one example, and the text of 1 occurs twice.
    assert dev.tolist() == [0, 3]
    assert train.tolist() == [1, 2, 4, 5]
    assert len(drawn_split([0, 3], 1 / 6, seed=1, texts=texts, labels=labels)[1]) == 1


def test_the_random_part_is_dev_and_sets_the_temperature(
    labels_file: Callable[..., Path], tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    file, run = labels_file(80, FEWEST_DRAWN), tmp_path / "run"
    given = ["--max-seq-length", "16", "--max-steps", "2", "--min-coverage", "0.5"]

    begin = ["finetune", "classify", str(tiny_model), "--train", str(file)]
    assert shell([*begin, *given, "--out", str(run)]) == 0

    notes = capsys.readouterr().err
    assert "20 labelled texts were drawn at random, 60 were chosen" in notes
    assert "no --dev: 20 of 80 examples, all of them drawn at random, are held out" in notes
    record = json.loads((run / "arguments.json").read_text())
    examples = load_data(str(file))
    counts = dict(Counter(one.label for one in examples[:20]))
    assert record["record"]["drawn"] == {"random": 20, "chosen": 60, "labels": counts}
    assert record["dev_fraction"] == 0.25
    assert (record["record"]["num_train"], record["record"]["num_dev"]) == (60, 20)
    card = (run / "README.md").read_text()
    assert "20 of the labelled texts were drawn at random, and 60 were chosen" in card
    assert "Measured on the 20 dev examples, all of them drawn at random" in card
    written = json.loads((run / "tidybert.json").read_text())
    assert written["settings"]["temperature"] != 1
    assert written["metrics"]["min_score"] > 0.5

    assert shell(["evaluate", str(run), str(file), "--json"]) == 0

    printed, notes = capsys.readouterr()
    found = json.loads(printed)
    assert found["num_chosen"] == 60
    right = found["drawn_at_random"]["accuracy"]
    assert f"accuracy of the 20 drawn at random is {right:.4f}" in notes


def test_few_random_ones_and_files_of_random_ones_alone_are_as_others(
    labels_file: Callable[..., Path],
) -> None:
    few, alone = (load_data(str(labels_file(60, count))) for count in (FEWEST_DRAWN - 1, 60))

    assert len(Classification.drawn_of(few)) == FEWEST_DRAWN - 1
    assert Classification.drawn_of(alone) == []


def test_sets_of_labels_are_held_out_too(tmp_path: Path) -> None:
    path = tmp_path / "sets.csv"
    rows = [
        f'text {at},"x{"" if at % 2 else ",y"}",{"random" if at < 5 else "chosen"}'
        for at in range(20)
    ]
    path.write_text("text,label,drawn\n" + "\n".join(rows) + "\n")
    examples = load_data(str(path), multi_label=True)

    train, dev = MultiLabelClassification.hold_out(examples, 0.25, seed=1)

    assert [one.drawn for one in dev] == ["random"] * 5
    assert len(train) == 15
    assert np.unique([one.drawn for one in train]).tolist() == ["chosen"]
