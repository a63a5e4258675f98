"""Scripts on few and wrong labels: draws, tables with every column, and nothing done twice."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.trees import checked

from benchmarks.harness import datasets, script
from benchmarks.harness.script import Results
from benchmarks.scores import active_learning, label_curves, labels
from tidybert import BertClassifier
from tidybert.checking import label_check as out_of_fold
from tidybert.files.text_examples import TextExample
from tidybert.modeling.kernels.linear import has_bfloat16_products, largest_weight
from tidybert.tasks.tags.tag_files import TaggedExample


def results_of(path: Path, lines: list[dict[str, Any]]) -> Results:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return Results(path)


def test_a_draw_has_as_many_of_each_class() -> None:
    examples = [TextExample(f"text {n}", None, "ab"[n % 2], n) for n in range(20)]
    examples.append(TextExample("rare", None, "c", 20))

    drawn = labels.of_each_class(examples, 3, seed=1)

    assert Counter(one.label for one in drawn) == {"a": 3, "b": 3, "c": 1}
    assert labels.of_each_class(examples, 3, 1) == drawn != labels.of_each_class(examples, 3, 2)


def draw(data: str, seed: int, side: str, score: float) -> dict[str, Any]:
    return {"data": data, "size": "8 a class", "seed": seed, "side": side, "accuracy": score}


def test_the_table_of_small_data_has_means_over_data(tmp_path: Path) -> None:
    draws = (("TREC", 1), ("TREC", 2), ("SST-2", 1))
    scores = {"vectors": (0.5, 0.7, 0.9), "SetFit": (0.4, 0.6, 0.8)}
    lines = [
        draw(*each, side, score)
        for side, values in scores.items()
        for each, score in zip(draws, values, strict=True)
    ]
    other = {**draw("TREC", 1, "SetFit", 0.2), "size": 50}

    tables = labels.tables(results_of(tmp_path / "small", [other, *lines]))

    assert tables[0] == "| data | texts | draws | vectors | SetFit |"
    assert tables[2:6] == [
        "| SST-2 | 8 a class | 1 | 90.0 | 80.0 |",
        "| TREC | 8 a class | 2 | 60.0 ± 14.1 | 50.0 ± 14.1 |",
        "| mean of 2 | 8 a class |  | 75.0 | 65.0 |",
        "",
    ]
    assert tables[6] == "| data | texts | draws | SetFit |"
    assert tables[8:] == ["| TREC | 50 | 1 | 20.0 |", "| mean of 1 | 50 |  | 20.0 |"]


def test_a_mean_compares_the_same_data_and_draws() -> None:
    vectors = [draw("TREC", 1, "vectors", 0.5), draw("TREC", 2, "vectors", 0.7)]
    only, other = draw("SST-2", 1, "vectors", 0.1), draw("TREC", 1, "SetFit", 0.4)

    table = labels.table([*vectors, only, other])
    assert table[-2:] == [
        "| TREC | 8 a class | 2 | 60.0 ± 14.1 | 40.0 (1) |",
        "| mean of 2 | 8 a class |  | 35.0 |  |",
    ]
    # An F1 of tags is no accuracy.
    tags = [draw("CoNLL-2003", seed, "vectors", 0.9) for seed in range(9)]
    assert labels.table([*vectors, only, other, *tags])[-1] == table[-1]
    assert len(labels.table(tags)) == 3
    fewer = labels.table([*vectors, only, other, draw("SST-2", 1, "SetFit", 0.2)])
    assert fewer[-1] == "| mean of 2 | 8 a class |  | 35.0 | 30.0 (1) |"


def test_a_third_of_the_articles_paragraphs_are_for_testing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(f"paragraph {n}", f"article {n % 4}") for n in range(60)]
    monkeypatch.setattr(datasets, "article_paragraphs", lambda count: rows[: 60 * (count == 20)])

    train, test = labels.parts(labels.ARTICLES, labels.ALL, 1)

    assert {(one.text, one.label) for one in [*train, *test]} == {*rows}
    assert len(train) + len(test) == 60
    assert 10 <= len(test) <= 30
    assert all(datasets.share_of(one.text) < 1 / 3 for one in test)
    again = labels.parts(labels.ARTICLES, labels.ALL, 2)[0]
    assert train != again
    assert sorted(train, key=lambda one: one.row) == sorted(again, key=lambda one: one.row)


def test_curves_need_all_five_sets_and_take_whole_sets_from_full_sets(
    run_script: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(side: str, size: object, data: Sequence[str], scores: Sequence[float]) -> Any:
        keys = product(data, enumerate(scores, 1))
        return [
            {"data": name, "size": size, "side": side, "seed": seed, "accuracy": score,
             "cpu_seconds": 10.0}
            for name, (seed, score) in keys
        ]  # fmt: skip

    sets = label_curves.SINGLE
    small = [
        *lines("default", 50, sets, [0.5, 0.7]),
        # A draw more of one set counts no more than its others.
        *lines("default", 100, sets, [0.6]), *lines("default", 100, sets[:1], [0.6, 0.9, 0.9]),
        *lines("SetFit", 50, sets[1:], [0.9]), *lines("default", "all", sets[:2], [1.0]),
        *lines("TF-IDF", 300, [labels.ARTICLES], [0.25]),
    ]  # fmt: skip
    full = [
        {"task": name, "side": side, "seed": 1, "metrics": {"accuracy": score}}
        for name in [*sets[2:], "MRPC"]
        for side, score in (("tidybert-small", 0.5), ("minilm", 0.0))
    ]
    files = {name: tmp_path / f"{name}.jsonl" for name in ("small", "full")}
    for path, found in zip(files.values(), (small, full), strict=True):
        path.write_text("".join(f"{json.dumps(line)}\n" for line in found))
    out = tmp_path / "curves.svg"

    flags = ["--small", files["small"], "--full", files["full"], "--out", out]
    assert run_script("label_curves", *flags) == 0

    root = checked(out.read_text())
    titles = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}title")][1:]
    assert [each for each in titles if each.endswith("%")] == [
        "tidybert's default, 50: 60.0 %", "tidybert's default, 100: 63.0 %",
        "tidybert's default, all: 70.0 %", "TF-IDF + logistic regression, 300: 25.0 %",
    ]  # fmt: skip
    assert "SetFit, 50: 10.0 s" in titles
    said = capsys.readouterr().out
    assert "tidybert's default: 8 a class, 300, 1000;" in said
    assert "SetFit: 8 a class, 50, 100, 300, 1000, all;" in said


@pytest.mark.usefixtures("toy_data")
def test_a_script_draws_of_each_class(
    run_script: Callable[..., int], tiny_model: Path, tmp_path: Path
) -> None:
    flags = ["--model", tiny_model, "--data", "SST-2", "--shots", 4, "--sides", "TF-IDF"]

    run_script("small_data", *flags, "--out", tmp_path / "small.jsonl")

    (found,) = Results(tmp_path / "small.jsonl").lines
    assert found["size"] == "4 a class"
    assert 0 <= found["accuracy"] <= 1


@pytest.mark.parametrize(
    ("name", "flags", "cells"),
    [
        ("label_errors", ["--size", "40"], 11),
        ("suggested_labels", ["--texts", 40, "--pool", 35], 4),
    ],
)
def test_a_script_measures_once_and_writes_its_table(
    name: str,
    flags: list[object],
    cells: int,
    run_script: Callable[..., int],
    toy_examples: Callable[..., list[Any]],
    page: Callable[[str], Path],
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    labels.embedded.cache_clear()
    monkeypatch.setattr(out_of_fold, "FOLDS", 2)
    for module in (labels, active_learning):
        monkeypatch.setattr(module, "DATA_SETS", ("toy",))
    monkeypatch.setattr(active_learning, "SIZES", (10, 20, 30))
    monkeypatch.setattr(active_learning, "_TOPICS", 5)
    monkeypatch.setattr(labels, "MAX_SEQ_LENGTH", 32)
    monkeypatch.setattr(datasets, "examples_of", lambda _name, _part: toy_examples(40))
    shown = page(name.replace("_", "-"))
    words = [name, "--model", tiny_model, "--seeds", "1", *flags, "--out", out, "--write", shown]

    run_script(*words)
    first = out.read_text()
    run_script(*words)

    assert out.read_text() == first
    row = next(line for line in shown.read_text().splitlines() if "toy" in line or "30 |" in line)
    assert len(row.split("|")) == cells + 2
    for line in map(json.loads, first.splitlines()):
        shares = line["precision" if name == "label_errors" else "scores"].values()
        assert all(0 <= share <= 1 for share in shares)


def test_runs_learn_from_texts_as_the_page_asks_them(
    run_script: Callable[..., int],
    toy_examples: Callable[..., list[Any]],
    page: Callable[[str], Path],
    tiny_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(active_learning, "SETS", ("toy",))
    monkeypatch.setattr(active_learning, "_NUM_LABELS", 10)
    monkeypatch.setattr(datasets, "examples_of", lambda _name, _part: toy_examples(40))
    short = partial(BertClassifier, max_seq_length=32)
    monkeypatch.setattr(active_learning, "BertClassifier", short)
    active_learning._labelled_pool.cache_clear()
    shown, out = page("asked-texts"), tmp_path / "out.jsonl"

    run_script("asked_texts", "--small", tiny_run, "--seeds", 1, "--out", out, "--write", shown)

    examples, probe = active_learning._labelled_pool("toy", str(tiny_run))
    numbers, drawn = active_learning.asked(examples, probe, seed=1)
    assert len({*numbers}) == 10
    assert drawn.count("random") == 2
    found = Results(out).lines
    assert [each["texts"] for each in found] == list(active_learning.LEARNED)
    assert all(0 <= each["accuracy"] <= 1 for each in found)
    (row,) = (line for line in shown.read_text().splitlines() if "toy" in line)
    assert len(row.split("|")) == 6


def test_cleanlab_ranks_the_same_probabilities(
    toy_examples: Callable[..., list[Any]], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels.embedded.cache_clear()
    monkeypatch.setattr(datasets, "examples_of", lambda _name, _part: toy_examples(40))
    monkeypatch.setattr(labels, "MAX_SEQ_LENGTH", 32)
    given: list[dict[str, Any]] = []

    def ranked(_python: str, _program: str, work: dict[str, Any]) -> dict[str, list[int]]:
        given.append(json.loads(json.dumps(work)))
        order = list(range(40))
        return {**dict.fromkeys(labels.RANKINGS, order), "find_label_issues": order[:4]}

    monkeypatch.setattr(script, "in_environment", ranked)
    arguments = type("Given", (), {"size": 40, "model": str(tiny_model), "cleanlab": "python"})
    found = labels.flipped_found("toy", 0.1, 1, arguments)  # type: ignore[arg-type]

    (work,) = given
    assert [len(row) for row in work["p"]] == [2] * 40
    assert len(work["labels"]) == 40
    # 4 of 40 labels are flipped, so a whole list has them all.
    assert found["listed"]["self_confidence"] == 40
    assert found["found"]["self_confidence"] == 1.0
    assert found["found"]["find_label_issues"] == found["precision"]["self_confidence"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_estimator_is_scored_on_small_data(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def most_frequent(python: str, _program: str, work: dict[str, Any]) -> list[str]:
        assert python == "setfit/bin/python"
        ((label, _),) = Counter(label for _, label in work["train"]).most_common(1)
        return [label] * len(work["test"])

    monkeypatch.setattr(script, "in_environment", most_frequent)
    train, test = labels.parts("tickets", 300, 1)
    # transformers opens only a BERT that says so.
    model = shutil.copytree(tiny_model, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
    lines = []
    for side in labels.SIDES:
        some = train[: 300 if side == "TF-IDF" else 30]
        estimator = labels.build(side, model, some, "setfit/bin/python", 1)
        if side == "vectors":
            estimator.set_params(bertvectorizer__max_seq_length=8)
        elif side in labels.WAYS:
            estimator.set_params(model=model, max_seq_length=8, max_steps=1)
        found = labels.scored(estimator, some, test)
        lines.append({"data": "tickets", "size": 300, "side": side, "seed": 1, **found})

    assert lines[0]["accuracy"] > 0.7
    assert all(0 < line["accuracy"] < 1 for line in lines)
    cells = [f"{100 * line['accuracy']:.1f}" for line in lines]
    table = labels.table(lines)
    assert table[-1] == f"| mean of 1 | 300 |  | {' | '.join(cells)} |"

    words = [TaggedExample(("in", "Rome"), ("O", "B-LOC"), n) for n in range(4)]
    tagger = labels.build("default", model, words, "none", 1)
    tagger.set_params(model=model, max_seq_length=8, max_steps=1)
    assert 0 <= labels.scored(tagger, words, words)["accuracy"] <= 1

    pairs = [TextExample("one two", "three", "a", 1), TextExample("four", "five six", "b", 2)]
    counted = labels.build("TF-IDF", "none", pairs, "none", 1)
    counted.fit([("one two", "three"), ("four", "five six")], ["a", "b"])
    assert set(counted[0].vocabulary_) == {"one", "two", "three", "four", "five", "six"}


def test_padded_cells_are_counted_by_batch(
    toy_data: Path,
    tiny_model: Path,
    run_script: Callable[..., int],
    page: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # [CLS] and [SEP] make 3, 4 and 7 tokens of these, and all are padded to 7.
    texts = ["cat", "red cat", "red cat red cat red"]
    lines = ["sentence\tlabel", *(f"{text}\t{n % 2}" for n, text in enumerate(texts))]
    (toy_data / "glue/SST-2/train.tsv").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr("benchmarks.harness.datasets.GROUPS", {"glue": ["SST-2"], "text": []})
    written = page("padding")

    run_script("padding", "--model", tiny_model, "--write", written)

    assert "| SST-2 | 3 | 4.7 | 1.50 |" in written.read_text()


def test_int8_is_scored_beside_float32_by_one_model(
    pretrained_run: Path,
    toy_data: Path,
    tmp_path: Path,
    run_script: Callable[..., int],
    page: Callable[[str], Path],
) -> None:
    if not largest_weight():
        pytest.skip("no exact 8-bit products here")
    out, written = tmp_path / "int8.jsonl", page("int8-scores")
    flags = [
        "--model",
        pretrained_run,
        "--data",
        "SST-2",
        "STS-B",
        "--num-examples",
        6,
        "--out",
        out,
    ]

    assert run_script("int8", *flags, "--write", written) == 0

    rows = [line.split(" | ") for line in written.read_text().splitlines() if "|" in line][2:]
    assert [row[0] for row in rows] == ["| SST-2, accuracy", "| STS-B, pearson"]
    for row in rows:
        assert len(row) == 8
        assert all(0 <= abs(float(each.strip(" |"))) <= 100 for each in row[2:])
        *moved, spread = (float(each.strip(" |")) for each in row[5:])
        bfloat16, int8 = moved
        assert 0 < int8 < spread
        # Where oneDNN has no products of bfloat16 the figures are float32's.
        assert 0 < bfloat16 < spread if has_bfloat16_products() else bfloat16 == 0
