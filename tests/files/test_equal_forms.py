"""Each form of a file gives the examples of the plain one, so that training on it is the same."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from tests.files.test_formats import book, choice, saved_dataset, studio, studio_span

import tidybert

Rows = Sequence[tuple[str, ...]]
Form = Callable[[Path, Rows], Path]
WORDS = [
    "schöne",
    "Grüße,",
    "für",
    "mich;",
    'say "hi"',
    "nothing",
    "two\nlines",
    "Zoë",
    "1,5",
    "a|b",
]


def table(delimiter: str, encoding: str = "utf-8", *, first: str = "", name: str = "a.csv") -> Form:
    def write(folder: Path, rows: Rows) -> Path:
        made = io.StringIO(first, newline="")
        made.seek(0, io.SEEK_END)
        csv.writer(made, delimiter=delimiter).writerows(rows)
        (folder / name).write_bytes(made.getvalue().encode(encoding))
        return folder / name

    return write


def objects(rows: Rows) -> list[dict[str, str]]:
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def text_of(name: str, made: Callable[[Rows], str], encoding: str = "utf-8") -> Form:
    def write(folder: Path, rows: Rows) -> Path:
        (folder / name).write_bytes(made(rows).encode(encoding))
        return folder / name

    return write


def lines_of(values: Sequence[Any]) -> str:
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in values)


def arrow(name: str) -> Form:
    def write(folder: Path, rows: Rows) -> Path:
        made = pa.Table.from_pylist(objects(rows))
        path = folder / name
        if name == "saved":
            return saved_dataset(path, made)
        if name == "a.parquet":
            pq.write_table(made, path)
        else:
            pyarrow.feather.write_feather(made, str(path))
        return path

    return write


def sheet(folder: Path, rows: Rows) -> Path:
    return book(folder / "a.xlsx", *map(list, rows))


def folders(folder: Path, rows: Rows) -> Path:
    for number, (text, label) in enumerate(rows[1:]):
        (folder / "all" / label).mkdir(parents=True, exist_ok=True)
        (folder / "all" / label / f"{number:03}.txt").write_text(text)
    return folder / "all"


def pandas(rows: Rows) -> str:
    columns = zip(rows[0], zip(*rows[1:], strict=True), strict=True)
    return json.dumps({name: {str(at): one for at, one in enumerate(cells)}
                       for name, cells in columns})  # fmt: skip


def as_json(rows: Rows) -> str:
    # A question without an id has the number of its line.
    return json.dumps(objects(rows), ensure_ascii=False, indent=0)


def chosen(rows: Rows) -> str:
    return json.dumps([studio([choice(label)], text) for text, label in rows[1:]])


TABLES: dict[str, Form] = {
    "semicolons": table(";"),
    "a mark": table(";", "utf-8-sig"),
    "cp1252": table(";", "cp1252"),
    "sep": table(";", first="sep=;\r\n"),
    "Unicode text": table("\t", "utf-16", name="a.txt"),
    "sheet": sheet,
    "feather": arrow("a.feather"),
    "arrow": arrow("a.arrow"),
    "parquet": arrow("a.parquet"),
    "save_to_disk": arrow("saved"),
    "JSON in cp1252": text_of("a.json", as_json, "cp1252"),
    "JSON in UTF-16": text_of("a.json", as_json, "utf-16"),
    "lines in cp1252": text_of("a.jsonl", lambda rows: lines_of(objects(rows)), "cp1252"),
    "lines in UTF-16": text_of("a.jsonl", lambda rows: lines_of(objects(rows)), "utf-16"),
    "pandas": text_of("a.json", pandas),
}
OF_TEXTS: dict[str, Form] = {
    **TABLES,
    "folders": folders,
    "Label Studio": text_of("a.json", chosen),
}


def plain(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    (folder / "plain.jsonl").write_text(lines_of(rows))
    return folder / "plain.jsonl"


@pytest.mark.parametrize("form", OF_TEXTS)
def test_texts(form: str, tmp_path: Path) -> None:
    random = Random(form)
    # The first shows the encoding.
    made = ["für schöne Grüße"] + [" ".join(random.choices(WORDS, k=4)) for _ in range(30)]
    rows = [("text", "label"), *((each, random.choice(["gut", "schlecht"])) for each in made)]

    found, expected = (
        [(one.text, one.label) for one in tidybert.load_data(path)]
        for path in (OF_TEXTS[form](tmp_path, rows), plain(tmp_path, objects(rows)))
    )

    order = sorted if form == "folders" else list
    assert order(found) == order(expected) == order(rows[1:])


QUESTIONS = [
    ("question", "context", "answer"),
    ("Für wen?", "Grüße für Anna; danke, Anna!", "Anna"),
    ("Why?", 'She said: "no"', ""),
    ("Who?", "Anna\nand Zoë", "Zoë"),
]


@pytest.mark.parametrize("form", [one for one in TABLES if one not in ("Unicode text", "pandas")])
def test_questions(form: str, tmp_path: Path) -> None:
    found, expected = (
        [(one.question, one.context, one.answers, one.is_impossible)
         for one in tidybert.load_data(path, "answer")]
        for path in (TABLES[form](tmp_path, QUESTIONS), plain(tmp_path, objects(QUESTIONS)))
    )  # fmt: skip

    assert found == expected
    assert found[0][2] == (("Anna", 10),)


@pytest.mark.parametrize("by", [-1, 1, 7, -1000, 1000])
def test_answers_that_are_off(by: int, tmp_path: Path) -> None:
    context = "Zoë said: Anna drinks tea."

    def squad(off: int) -> Path:
        answers = [{"text": part, "answer_start": context.index(part) + off}
                   for part in ("Zoë", "Anna", "tea")]  # fmt: skip
        asked = [{"id": one["text"], "question": "?", "answers": [one]} for one in answers]
        path = tmp_path / f"{off}.json"
        path.write_text(
            json.dumps({"data": [{"paragraphs": [{"context": context, "qas": asked}]}]})
        )
        return path

    assert tidybert.load_data(squad(by), "answer") == tidybert.load_data(squad(0), "answer")


MARKED = [
    ("Zoë lives in Old Town", [(0, 3, "PER"), (13, 21, "LOC")]),
    ("He sleeps", []),
    ("für Anna, Zoë", [(4, 8, "PER"), (10, 13, "PER")]),
]


def brat(folder: Path, _rows: Rows) -> Path:
    (folder / "brat").mkdir()
    for number, (text, marks) in enumerate(MARKED):
        (folder / "brat" / f"{number}.txt").write_text(text + "\n")
        lines = [f"T{at}\t{label} {start} {end}\t{text[start:end]}\n"
                 for at, (start, end, label) in enumerate(marks)]  # fmt: skip
        (folder / "brat" / f"{number}.ann").write_text("".join(lines))
    return folder / "brat"


TOOLS: dict[str, Form] = {
    "doccano": text_of(
        "a.jsonl", lambda _rows: lines_of([{"text": text, "label": on} for text, on in MARKED])
    ),
    "Label Studio": text_of(
        "a.json",
        lambda _rows: json.dumps([studio([studio_span(*one) for one in on], text)
                                  for text, on in MARKED]),
    ),
    "brat": brat,
}  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS)
def test_spans(tool: str, tmp_path: Path) -> None:
    entities = [
        {"text": text, "entities": [dict(zip(("start", "end", "label"), one, strict=True))
                                    for one in on]}
        for text, on in MARKED
    ]  # fmt: skip

    found, expected = (
        [(one.text, one.words, one.tags) for one in tidybert.load_data(path, "tag")]
        for path in (TOOLS[tool](tmp_path, ()), plain(tmp_path, entities))
    )

    assert found == expected
    assert found[2][2] == ("O", "B-PER", "O", "B-PER")


# Their objects are sentences, and a .txt of tags is CoNLL's.
NO_WORDS = ("JSON", "lines", "pandas", "Unicode")


@pytest.mark.parametrize("form", [one for one in TABLES if one.split()[0] not in NO_WORDS])
def test_words_in_rows(form: str, tmp_path: Path) -> None:
    sentences = [[("für", "O"), ("Zoë", "B-PER")], [("Old", "B-LOC"), ("Town,", "I-LOC")]]
    rows = [("Sentence #", "Word", "Tag")]
    for number, sentence in enumerate(sentences):
        rows += [(f"Sentence: {number}", *word) for word in sentence]
    kept = [{"tokens": list(words), "tags": list(tags)}
            for words, tags in (zip(*one, strict=True) for one in sentences)]  # fmt: skip

    found, expected = (
        [(one.words, one.tags) for one in tidybert.load_data(path, "tag")]
        for path in (TABLES[form](tmp_path, rows), plain(tmp_path, kept))
    )

    assert found == expected


@pytest.mark.parametrize("form", ["semicolons", "a mark", "sep", "Unicode text", "sheet"])
def test_scores_with_a_comma(form: str, tmp_path: Path) -> None:
    scores = [Random(form).randrange(-500, 500) / 100 for _ in range(30)]
    rows = [("text", "score"), *((f"für {at}", f"{one}") for at, one in enumerate(scores))]
    commas = [rows[0], *((text, score.replace(".", ",")) for text, score in rows[1:])]

    found, expected = (
        [(one.text, one.label) for one in tidybert.load_data(path, "regress")]
        for path in (TABLES[form](tmp_path, commas), plain(tmp_path, objects(rows)))
    )

    assert found == expected
