"""``tidybert evaluate``: what it tells of long texts for every task, and how examples are named."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.commands.training import Evaluate
from tidybert.cli.main import run as shell
from tidybert.metrics.bootstrap import FEWEST_RESAMPLES, NUM_RESAMPLES
from tidybert.modeling.kernels import answer_layers
from tidybert.modeling.kernels.linear import largest_weight
from tidybert.options import declared

LONG = "red near the old and the new cow was the " * 4
FILES: dict[str, tuple[str, str]] = {
    "classify": (
        "a.csv",
        "text,label\n" + "".join(f"a red {n} {LONG if n % 2 else ''},{n % 2}\n" for n in range(8)),
    ),
    "multi-label": (
        "a.csv",
        "text,x,y\n"
        + "".join(f"a red {n} {LONG if n % 2 else ''},{n % 2},{n // 2 % 2}\n" for n in range(8)),
    ),
    "regress": (
        "a.csv",
        "text,label\n" + "".join(f"a red {n} {LONG if n % 2 else ''},{n}\n" for n in range(8)),
    ),
    "choose": (
        "a.jsonl",
        "".join(
            json.dumps(
                {"context": LONG if n % 2 else "we saw", "choices": ["red", "cat"], "label": n % 2}
            )
            + "\n"
            for n in range(8)
        ),
    ),
    "tag": (
        "a.conll",
        "".join(
            "".join(f"{word} O\n" for word in (LONG if n % 2 else "we saw").split()) + "cat B-X\n\n"
            for n in range(8)
        ),
    ),
    "answer": (
        "a.json",
        json.dumps(
            {
                "data": [
                    {
                        "title": "t",
                        "paragraphs": [
                            {
                                "context": f"cat {n} {LONG if n % 2 else ''}",
                                "qas": [
                                    {
                                        "id": f"q{n}",
                                        "question": "the red " * (8 if n == 1 else 1),
                                        "answers": [{"text": "cat", "answer_start": 0}],
                                    }
                                ],
                            }
                            for n in range(8)
                        ],
                    }
                ]
            }
        ),
    ),
}
WINDOWS = ["--long", "windows", "--doc-stride", "7"]


def finetune(tmp_path: Path, model: Path, task: str, *flags: str) -> tuple[str, str, list[str]]:
    """The RUN and the file of a task, and the flags with which its files are read."""
    name, content = FILES[task]
    file, run = tmp_path / name, tmp_path / "run"
    file.write_text(content)
    read = {"multi-label": ["--label", "x,y"], "tag": ["--format", "conll"]}.get(task, [])
    given = ["--train", str(file), "--dev", str(file), "--out", str(run), "--max-steps", "1"]
    given += ["--max-seq-length", "16", *read, *flags]
    if task == "multi-label":
        given.append("--multi-label")
    if task == "answer":
        given += ["--max-query-length", "6", "--doc-stride", "4"]
    name = "classify" if task == "multi-label" else task
    assert shell(["finetune", name, str(model), *given]) == 0
    return str(run), str(file), read


@pytest.mark.parametrize(
    ("task", "flags", "cut", "windowed", "told"),
    [
        ("classify", [], 4, 0, "4 of 8 examples were cut to --max-seq-length"),
        ("classify", ["--long", "head-tail"], 4, 0, "4 of 8 examples were cut in the middle to"),
        ("classify", WINDOWS, 0, 4, "4 of 8 examples were read in windows, "),
        ("multi-label", WINDOWS, 0, 4, "4 of 8 examples were read in windows, "),
        ("regress", WINDOWS, 0, 4, "4 of 8 examples were read in windows, "),
        ("regress", [], 4, 0, "4 of 8 examples were cut to --max-seq-length"),
        ("choose", [], 4, 0, "4 of 8 examples were cut to --max-seq-length"),
        ("tag", [], 0, 4, "4 of 8 examples were read in windows, "),
        ("answer", [], 1, 4, "1 of 8 examples had their question cut to --max-query-length"),
        ("answer", [], 1, 4, "4 of 8 examples were read in windows, "),
    ],
)
def test_it_tells_what_was_cut_and_what_was_read_in_windows(
    task: str,
    flags: list[str],
    cut: int,
    windowed: int,
    told: str,
    tiny_model: Path,
    tmp_path: Path,
    capsys: Any,
) -> None:
    run, file, read = finetune(tmp_path, tiny_model, task, *flags)
    capsys.readouterr()

    assert shell(["evaluate", run, file, *read, "--json"]) == 0

    out, err = capsys.readouterr()
    metrics = json.loads(out)
    assert (metrics["num_truncated"], metrics["num_windowed"]) == (cut, windowed)
    assert metrics["num_windows"] >= 2 * windowed
    assert told in err
    assert ("read in windows" in err) == bool(windowed)
    assert shell(["evaluate", run, file, *read]) == 0
    assert told in capsys.readouterr().err


def test_tags_are_taken_for_what_they_were_in_training(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    train, few, run = (tmp_path / name for name in ("train.conll", "few.conll", "run"))
    train.write_text("we S\nthe B\nold M\ncat E\n\n" * 8)
    few.write_text("we S\nthe B\ncat E\n")
    given = ["--train", str(train), "--dev", str(few), "--out", str(run), "--max-steps", "1"]
    given += ["--max-seq-length", "16"]

    assert shell(["finetune", "tag", str(tiny_model), *given]) == 0
    assert shell(["evaluate", str(run), str(few), "--json"]) == 0

    out, err = capsys.readouterr()
    assert set(json.loads(out.splitlines()[-1])["per_label"]) <= set("BEMS")
    assert err.count(f"{few}: tags are classes of words, as in training") == 2


def test_a_report_names_questions_by_their_ids(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    run, file, _ = finetune(tmp_path, tiny_model, "answer")

    report = ["--report", str(tmp_path / "report"), "--resamples", "150"]
    assert shell(["evaluate", run, file, *report]) == 0

    contents = json.loads((tmp_path / "report" / "report.json").read_text())
    assert contents["bootstrap"]["num_resamples"] == 150
    assert contents["correctness"] == "F1 of the answer"
    assert contents["origin"]["seed"] == 42
    assert contents["origin"]["start"] == str(tiny_model)
    places = {(one["row"], one["id"]) for one in contents["uncertain"]["shown"]}
    assert places == {(1, f"q{n}") for n in range(8)}
    assert any("in windows" in note for note in contents["notes"])
    page = (tmp_path / "report" / "report.html").read_text()
    assert "id q3 ·" in page
    assert "row 1" not in page


def test_the_intervals_are_drawn_from_as_many_samples_as_the_library_says() -> None:
    (resamples,) = (one for one in fields(Evaluate) if one.name == "resamples")

    assert (resamples.default, declared(resamples).at_least) == (NUM_RESAMPLES, FEWEST_RESAMPLES)


def test_questions_that_only_their_lines_name_keep_these(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    run, _, _ = finetune(tmp_path, tiny_model, "answer")
    file = tmp_path / "b.jsonl"
    one = {"question": "the red", "context": "we saw a cat", "answers": ["cat"]}
    file.write_text("".join(json.dumps(one) + "\n" for _ in range(3)))

    assert shell(["evaluate", run, str(file), "--report", str(tmp_path / "report")]) == 0

    contents = json.loads((tmp_path / "report" / "report.json").read_text())
    assert {(each["row"], each["id"]) for each in contents["uncertain"]["shown"]} == {
        (1, None),
        (2, None),
        (3, None),
    }
    assert "row 3 ·" in (tmp_path / "report" / "report.html").read_text()


def test_what_the_model_does_not_know_is_named_with_its_file(
    tiny_run: Path, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "dev.csv"
    file.write_text("text,label\na red,colour\na cat,beast\na hen,beast\na dog,pet\n")

    assert shell(["evaluate", str(tiny_run), str(file)]) == 1

    err = capsys.readouterr().err
    assert f"{file}: 2 labels that the model does not know:\n" in err
    assert "  'beast', 2 times, the first on line 3\n  'pet', on line 5\nIt knows 2: animal" in err


def test_answers_that_occur_twice_are_named_by_their_ids(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    file, run = tmp_path / "twice.json", tmp_path / "run"
    qas = [{"id": f"q{n}", "question": "the red", "answers": [{"text": "cat"}]} for n in range(4)]
    paragraphs = [{"context": f"cat and cat {n}", "qas": [each]} for n, each in enumerate(qas)]
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    flags = ["--max-seq-length", "16", "--max-query-length", "6", "--max-steps", "1"]

    command = ["finetune", "answer", str(tiny_model), "--train", str(file), "--out", str(run)]
    assert shell([*command, *flags]) == 0

    assert "of which the first is taken (id q0, q1, q2, q3)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("evaluate", ["--max-seq-length", "0"], "--max-seq-length 0 leaves no room for text"),
        ("predict", ["--max-seq-length", "0"], "--max-seq-length 0 leaves no room for text"),
        (
            "predict",
            ["--out", "none/a.jsonl"],
            "--out none/a.jsonl: the folder none does not exist; make it first",
        ),
        ("predict", ["--out", "dev.csv/a.jsonl"], "the folder dev.csv is a file"),
        ("evaluate", ["--report", "dev.csv/report"], "dev.csv is not a writable folder"),
    ],
)
def test_what_cannot_be_done_is_said(
    command: str,
    flags: list[str],
    message: str,
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dev.csv").write_text("text,label\na red,colour\na cat,animal\n")

    assert shell([command, str(tiny_run), "dev.csv", *flags]) == 2

    err = capsys.readouterr().err
    assert message in err
    assert "Errno" not in err
    assert "computing" not in err


def test_scores_are_predicted_whatever_the_labels_of_the_file_are(
    tiny_score_run: Path, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\na red,good\na cat,\n")

    assert shell(["predict", str(tiny_score_run), str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert shell(["evaluate", str(tiny_score_run), str(file)]) == 1
    assert f"{file}:2: the score 'good' is not a finite number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("choose", "a.csv", "sent1,sent2,ending0,ending1,label\nwe,saw,red,cat,0\n"),
        ("choose", "a.jsonl", '{"context": "we", "choices": ["red", "cat"], "label": 0}\n'),
        ("answer", "a.json", '[{"question": "the", "context": "red", "answers": ["red"]}]'),
        ("answer", "a.jsonl", '{"question": "the", "context": "red", "answers": ["red"]}\n'),
        ("tag", "a.conll", "red B-X\n\n"),
        ("classify", "a.csv", "text,label\na red,colour\n"),
        ("classify", "a.json", '[{"text": "a red", "label": "colour"}]'),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_file_in_utf_16_is_said_to_be_one(
    task: str, name: str, content: str, encoding: str, tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode(encoding))
    out = ["--out", str(tmp_path / "run"), "--max-seq-length", "32", "--num-train-epochs", "0"]
    # Its first bytes say it.
    is_read = encoding == "utf-16"

    status = shell(["finetune", task, str(tiny_model), "--train", str(file), *out])

    err = capsys.readouterr().err
    assert "utf-16" in err
    assert (f"{file}: read as" in err) == is_read
    assert is_read or (status == 1 and f"{file}:1: " in err)


def test_columns_of_one_name_are_named(tiny_run: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label,label\na red,colour,colour\n")

    assert shell(["evaluate", str(tiny_run), str(file)]) == 1

    told = "cannot tell which column holds the label; several are named 'label'. Columns seen:"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("largest", [None, 0])
def test_int8_is_said_and_what_lacks_it_answers_in_float32_with_a_note(
    largest: int | None,
    served: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if largest is not None:
        monkeypatch.setattr(answer_layers, "largest_weight", lambda: largest)
    elif not largest_weight():
        pytest.skip("no exact 8-bit products here")
    file = tmp_path / "a.csv"
    file.write_text("text,label\na red cow,animal\nold and new,colour\n")
    command = ["evaluate", served["colours"], str(file), "--device", "cpu"]

    assert shell([*command, "--precision", "int8", "--json"]) == 0

    found = capsys.readouterr()
    computed_in = json.loads(found.out)["computed_in"]
    assert computed_in == ("int8" if largest is None else "float32")
    assert ("precision: float32 in place of int8" in found.err) == (largest == 0)


def test_training_in_int8_is_refused(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\na red cow,animal\nold and new,colour\n" * 9)
    flags = ["--train", str(file), "--out", str(tmp_path / "run"), "--precision", "int8"]

    assert shell(["finetune", "classify", str(tiny_model), *flags]) == 2

    assert "--precision" in capsys.readouterr().err
