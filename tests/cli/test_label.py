"""``tidybert label``: the command, and that a kill at any key loses no answer."""

import csv
import random
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx

from tidybert.cli.commands.labelling import Label
from tidybert.cli.main import run
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_files import read_examples

TEXTS = [f"text number {number}, which is {'long ' * (number % 5 * 300)}" for number in range(40)]


class Client:
    """The page's requests, without a browser."""

    def __init__(self, command: Any) -> None:
        self.notes = ""
        while "the page is at" not in self.notes:
            self.notes += command.stderr.readline()
        address = re.findall(r"http://\S+", self.notes)[0]
        self._client = httpx.Client(base_url=address, timeout=60)
        page = self._client.get("/").text
        self._token = re.findall('tidybert-token" content="([^"]+)"', page)[0]

    def post(self, act: str, **body: Any) -> Any:
        head = {"X-Tidybert-Token": self._token}
        response = self._client.post(f"/label/{act}", json=body, headers=head)
        assert response.status_code == 200, response.text
        return response.json()


def test_a_kill_at_any_key_loses_no_answer(tmp_path: Path, begin: Any, served: Any) -> None:
    file, out = tmp_path / "texts.csv", tmp_path / "labels.csv"
    file.write_text("text\n" + "".join(f'"{text}"\n' for text in TEXTS))
    words = ["label", file, "--out", out, "--labels", "a,b", "--model", served["base"]]
    words += ["--name", "Ann", "--port", "0", "--no-browser"]
    said: dict[str, str] = {}
    for seed in range(2):
        command = begin(*words, stderr=subprocess.PIPE, cwd=tmp_path)
        client = Client(command)
        view = client.post("view")
        assert view["labelled"] == len(said)
        killer = threading.Timer(random.Random(seed).uniform(0.2, 0.5), command.kill)
        killer.start()
        asked = ""
        try:
            while view["item"]:
                asked, number = view["item"]["texts"][0], view["item"]["number"]
                label = "ab"[number % 2]
                view = client.post("answer", number=number, labels=[label])
                said[asked] = label
        except httpx.HTTPError:
            pass
        killer.join()
        command.wait()
        found = {one.text: one.label for one in read_examples(out, None, need_label=True)}
        # The last one may be on the disk, though nobody heard of it.
        assert {text: found.get(text) for text in said} == said
        assert set(found) - set(said) <= {asked}
        said = {text: str(label) for text, label in found.items()}

    command = begin(*words, stderr=subprocess.PIPE, cwd=tmp_path)
    client = Client(command)
    assert client.post("view")["labelled"] == len(said)
    # Nobody else labels into the file meanwhile.
    other = begin(*words, stderr=subprocess.PIPE, cwd=tmp_path)
    assert other.wait() == 1
    assert "is in use by process" in other.stderr.read()
    command.send_signal(signal.SIGTERM)
    assert command.wait() == 0
    assert ",Ann," in out.read_text(encoding="utf-8")
    assert not list(tmp_path.glob(".*tidybert-lock"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of --out labels.csv and --corrections"),
        (["--out", "labels.xlsx"], "ends in .csv"),
        (["--corrections", "c.csv", "--labels", "a"], "--labels does not go with --corrections"),
        (
            ["tag", "--out", "labels.csv", "--multi-label"],
            "--multi-label does not go with the task",
        ),
        (["--out", "labels.csv", "--soft"], "--soft goes with --corrections"),
        (["answer", "--out", "labels.csv"], "TASK is 'answer'; expected classify or tag"),
        (["--out", "labels.csv"], "holds no example"),
        (["--out", "labels.csv", "--model", "minlm"], "did you mean 'minilm'?"),
        (
            ["--out", "labels.csv", "--model", "."],
            ". is not a MODEL: it has texts.csv, but no config.json",
        ),
    ],
)
def test_wrong_usage_is_told(
    words: list[str], said: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.csv").write_text("text\n")
    assert run(["label", "texts.csv", *words]) in (1, 2)
    assert said in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["texts.csv"]


def test_a_model_that_cannot_be_trained_is_refused(
    tiny_model: Path, served: Any, tmp_path: Path, capsys: Any
) -> None:
    graph, texts, out = tmp_path / "graph", tmp_path / "texts.csv", tmp_path / "labels.csv"
    (graph / "onnx").mkdir(parents=True)
    (graph / "onnx" / "model.onnx").write_bytes(b"")
    shutil.copy(tiny_model / "config.json", graph)
    texts.write_text("text\nfine\n")
    for model, said in ((graph, "an ONNX graph, which"), (served["poem"], "a language model")):
        assert run(["label", str(texts), "--out", str(out), "--model", str(model)]) in (1, 2)
        assert f"{model} is {said}" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("rows", "how"),
    [
        ("text,label\nfine,no\ngood,yes\nbad,no\n", []),
        ("text,no,yes\nfine,0.9,0.1\ngood,0,1\n", ["--soft", "--label", "no,yes"]),
    ],
)
def test_corrections_of_a_check_are_opened(
    rows: str, how: list[str], tmp_path: Path, begin: Any
) -> None:
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "c.csv").write_text("row,label,suggested,correction,text\n2,no,yes,,fine\n")
    words = ["label", "a.csv", *how, "--corrections", "c.csv", "--port", "0", "--no-browser"]
    command = begin(*words, stderr=subprocess.PIPE, cwd=tmp_path)
    client = Client(command)
    assert [each["name"] for each in client.post("view")["classes"]] == ["no", "yes"]
    client.post("answer", number=0, labels=["yes"])
    command.send_signal(signal.SIGTERM)
    assert command.wait() == 0
    assert (tmp_path / "c.csv").read_text().splitlines()[1] == "2,no,yes,yes,fine"


def test_labels_that_are_there_begin_and_a_spreadsheet_fills_in_the_next(
    tmp_path: Path, monkeypatch: Any, capsys: Any, begin: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n" + "".join(f"the red cat {number}\n" for number in range(30)))
    Path("old.csv").write_text(
        "text,label\nthe red cat 3,a\na blue dog,b\nan old dog,b\nthe cat was,a\n"
    )
    words = ["label", "texts.txt", "--out", "labels.csv"]
    suggest = [*words, "--labelled", "old.csv", "--suggest"]

    assert run([*suggest, "10"]) == 0

    notes = capsys.readouterr().err
    assert "labels.csv has 4 labels of old.csv now" in notes
    assert "texts.txt:1: the text is blank" in notes
    assert "10 texts to label in labels.csv: fill in the column label" in notes
    assert run([*suggest, "5"]) == 0
    assert "0 labels of old.csv" in capsys.readouterr().err
    with Path("labels.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    asked = [row for row in rows if row["label_status"] == "asked"]
    # Each once, none that has a label, and every fifth at random.
    assert len({row["text"] for row in asked} - {"the red cat 3"}) == len(asked) == 15
    assert [row["drawn"] for row in asked] == ["chosen", "chosen", "chosen", "chosen", "random"] * 3
    # A person fills one in.
    content = Path("labels.csv").read_text(encoding="utf-8-sig")
    Path("labels.csv").write_text(
        content.replace(f"{asked[0]['text']},,", f"{asked[0]['text']},b,")
    )
    report = ReadReport()
    found = list(read_examples("labels.csv", None, need_label=True, report=report))
    assert [one.label for one in found] == ["a", "b", "b", "a", "b"]
    assert "texts without a label left out: 14 not labelled yet" in report.notes
    # The page asks the others first, as they were drawn.
    command = begin(*words, "--port", "0", "--no-browser", stderr=subprocess.PIPE, cwd=tmp_path)
    view = Client(command).post("view")
    assert (view["labelled"], view["left"]) == (5, 28)
    assert view["item"]["texts"] == [asked[1]["text"]]
    assert view["said"] == ""
    command.send_signal(signal.SIGTERM)
    assert command.wait() == 0


def test_a_training_has_the_classes_that_were_named(tmp_path: Path) -> None:
    described = tmp_path / "classes.csv"
    named: Any = {"labels": "a, b", "descriptions": str(described), "read": ReadOptions()}

    def flags(**more: Any) -> list[str]:
        label = Label(file="texts.txt", out=tmp_path / "l.csv", **named, **more)
        return label._training(tmp_path / "run", tmp_path / "report")[5:-6]

    assert flags() == ["--descriptions", str(described), "--labels", "a, b"]
    assert flags(multi_label=True) == ["--multi-label"]


@pytest.mark.parametrize(
    ("old", "words", "said"),
    [
        ("text_a,text_b,label\na,b,c\n", [], "old.csv:2: pairs and single texts do not mix"),
        ('text,label\na,"[""x,y""]"\n', ["--multi-label"], "old.csv:2: a comma separates labels"),
        ("text,label\na,b\n", ["tag"], "--labelled does not go with the task tag"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    old: str, words: list[str], said: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("a cat\na dog\n")
    Path("old.csv").write_text(old)
    given = ["label", "texts.txt", *words, "--out", "labels.csv", "--labelled", "old.csv"]
    assert run([*given, "--suggest", "1"]) in (1, 2)
    assert said in capsys.readouterr().err
