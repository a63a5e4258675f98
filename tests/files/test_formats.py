"""Labelled data as it lies on disks: each form reads as the same data do in the plain one."""

import io
import json
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import xlsxwriter

import tidybert
from tidybert.errors import DataError, LimitError, TidyBertError, UsageError, in_python
from tidybert.files.formats import FORMATS
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.storage.limits import Limit
from tidybert.tasks.labelled_examples import read_all
from tidybert.tasks.registry import task_class, task_flags

Write = Callable[[str, Any], Path]
TEXTS = [("schöne Grüße, danke", "gut"), ("für mich nichts", "schlecht")]
TABLE = "text;label\r\n" + "".join(f"{text};{label}\r\n" for text, label in TEXTS)

GUESSED = " (text and label guessed from the names)"
MOVED = (
    "1 span not at the given place, moved to the nearest where the text has it: 1 by {} "
    "(characters)"
)


def read(path: Path, task: str = "classify", **options: Any) -> tuple[list[Any], list[str]]:
    """The examples, and the lines that tell how they were read."""
    report = ReadReport()
    need_label = options.pop("need_label", True)
    given = ReadOptions(**options)
    found = read_all(task_class(task, task_flags()()), path, given, need_label=need_label,
                     report=report)  # fmt: skip
    return found, [line.removeprefix(f"{path}: ") for line in report.lines()]


def failure(path: Path, task: str = "classify", **options: Any) -> str:
    with pytest.raises((DataError, UsageError, LimitError)) as caught:
        read(path, task, **options)
    return str(caught.value)


def texts(path: Path, **options: Any) -> list[tuple[str, str]]:
    return [(one.text, one.label) for one in read(path, **options)[0]]


def book(path: Path, *rows: list[Any], name: str = "Data") -> Path:
    with xlsxwriter.Workbook(str(path)) as made:
        sheet = made.add_worksheet(name)
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return path


def saved_dataset(folder: Path, table: pa.Table, features: Any = None) -> Path:
    """What ``save_to_disk`` of datasets writes."""
    folder.mkdir()
    with pa.ipc.new_stream(str(folder / "data-00000-of-00001.arrow"), table.schema) as stream:
        stream.write_table(table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features or {}}))
    return folder


# Tables as spreadsheets export them


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (TABLE.encode("utf-8-sig"), "read as csv with ';', text"),
        (
            TABLE.encode("cp1252"),
            "read as csv with cp1252 (0xf6 is ö, 0xfc is ü, 0xdf is ß) and ';', text",
        ),
        (("sep=;\r\n" + TABLE).encode(), "read as csv with ';', text"),
        (TABLE.replace(";", "|").encode(), "read as csv with '|', text"),
        (TABLE.replace(";", "\t").encode("utf-16"), "read as csv with utf-16 (a byte-order mark) "),
    ],
)
def test_csv_of_excel(write: Write, content: bytes, note: str) -> None:
    path = write("a.csv", content)
    plain = write("plain.jsonl", [{"text": text, "label": label} for text, label in TEXTS])

    assert texts(path) == texts(plain) == TEXTS
    assert read(path)[1][0].startswith(note)


def test_unicode_text_of_excel(write: Write) -> None:
    path = write("a.txt", 'text\tlabel\r\n"say ""hi"""\tgood\r\nb\tbad\r\n'.encode("utf-16"))

    assert texts(path) == [('say "hi"', "good"), ("b", "bad")]
    assert [one.text for one in read(path, need_label=False)[0]] == ['say "hi"', "b"]
    assert texts(write("b.txt", "text\tlabel\nno, no\tbad\n")) == [("no, no", "bad")]
    assert "plain text has no labels" in failure(write("c.txt", "a\tb\nc\n"))


def test_a_flag_wins_over_what_a_file_shows(write: Write) -> None:
    path = write("a.csv", TABLE.encode("cp1252"))

    assert "cannot tell which column" in failure(path, delimiter="comma")
    assert "is not utf-8" in failure(path, encoding="utf-8")
    assert texts(path, encoding="latin-1", delimiter=";") == TEXTS
    (one, _), _ = read(write("b.csv", "so; so\nno; no\n"), need_label=False, text=0, header=False)
    assert one.text == "so; so"


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("tekst;ocena\nPaczka przyszła późno;źle\n", "cp1250"),
        ("text;třída\nZásilka přišla pozdě;špatně\n", "cp1250"),
        ("текст;класс\nПосылка опоздала;плохо\n", "cp1251"),
        ("metin;sınıf\nteşekkürler ağabey;kötü\n", "cp1254"),
        ("teksts;klase\nSūtījums kavējas;slikti\n", "cp1257"),
        ("Text;Label\nspät, schöne Grüße;gut\n", "cp437"),
        ("texte;avis\narrivé déçu;bon\n", "mac-roman"),
    ],
)
def test_another_encoding_is_not_guessed(write: Write, content: str, encoding: str) -> None:
    options = {"text": 0, "label": 1, "header": True}

    assert "is not utf-8" in failure(write("a.csv", content.encode(encoding)), **options)
    mixed = content.encode() + "für;gut\n".encode("cp1252")
    assert "is not utf-8" in failure(write("b.csv", mixed), **options)


@pytest.mark.parametrize(
    "line",
    [
        "Le colis est arrivé à l’heure, « merci » : où est-il?",
        "¿Dónde está el paquete? Llegó mañana",
        "não chegou, atenção",
        "Smørrebrød på torvet, færdig",
        "È arrivato più tardi, perché?",
        "Paketet är försenat på grund av snö",
    ],
)
def test_languages_of_cp1252(write: Write, line: str) -> None:
    path = write("a.csv", f"text;label\n{line};x\n".encode("cp1252"))

    assert texts(path) == [(line, "x")]


def test_scores_with_a_decimal_comma(write: Write) -> None:
    path = write("a.csv", "text;score\na;4,5\nb;3\nc;-0,25\n")
    examples, lines = read(path, "regress")

    assert [float(one.label) for one in examples] == [4.5, 3.0, -0.25]
    assert "scores with a decimal comma, such as '4,5'" in lines
    # A point beside it, or what may be thousands, leaves a doubt.
    for scores in ("4,5\nb;4.5\n", "1,250\nb;2,000\n"):
        message = failure(write("b.csv", f"text;score\na;{scores}"), "regress")
        assert "is not a finite number" in message


def test_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    with xlsxwriter.Workbook(str(path)) as made:
        made.add_worksheet("Secret").hide()
        sheet = made.add_worksheet("Data")
        sheet.activate()
        date = made.add_format({"num_format": "yyyy-mm-dd"})
        sheet.write_row(0, 0, ["text", "label", "day"])
        sheet.write_row(1, 0, ["one; é", 1])
        sheet.write_datetime(1, 2, datetime(2024, 2, 29), date)
        sheet.write_formula(3, 0, '=A2&"!"', None, "one!")
        sheet.write(3, 1, 2.5)
        sheet.merge_range(4, 0, 5, 0, "merged")
        sheet.write(4, 1, True)
        sheet.write(5, 1, "x")

    examples, lines = read(path)

    assert [(one.text, one.label, one.row) for one in examples] == [
        ("one; é", "1", 2), ("one!", "2.5", 4), ("merged", "true", 5), ("", "x", 6)
    ]  # fmt: skip
    assert lines[0].startswith("read as sheet with sheet 'Data', text text, label label")
    assert lines[1:] == [
        "1 other sheet (1 hidden) not read; sheet names one", "1 empty row passed over"
    ]  # fmt: skip
    assert read(path, text="day", need_label=False)[0][0].text == "2024-02-29"
    assert "no such sheet; did you mean 'Data'? Sheets: 'Secret', 'Data'" in failure(
        path, sheet="Dta"
    )
    assert "delimiter has no meaning for format='sheet'" in failure(path, delimiter=";")


def open_document(path: Path, *rows: tuple[str, ...]) -> Path:
    """The least .ods that its readers take."""
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    cells = "".join(
        f"<table:table-row>{''.join(map(cell.format, row))}</table:table-row>" for row in rows
    )
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    body = (
        f"<office:document-content {names}><office:body><office:spreadsheet>"
        f'<table:table table:name="A">{cells}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        packed.writestr("META-INF/manifest.xml", "<manifest/>")
        packed.writestr("content.xml", body)
    return path


def test_a_spreadsheet_of_libreoffice(tmp_path: Path) -> None:
    assert texts(open_document(tmp_path / "a.ods", ("text", "label"), *TEXTS)) == TEXTS


# Folders, Arrow, JSON of others


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for label, name, text in [
        ("neg", "10", b"bad\n"), ("neg", "9_1.txt", "schade für mich".encode("cp1252")),
        ("pos", "a.txt", b"two\nlines\n"), ("unsup", "1.txt", b"none"),
    ]:  # fmt: skip
        (tmp_path / "train" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / label / name).write_bytes(text)
    (tmp_path / "train" / "urls.txt").write_text("x")
    (tmp_path / "train" / "loop").symlink_to(tmp_path / "train")

    examples, lines = read(tmp_path / "train")

    assert [(one.text, one.label) for one in examples] == [
        ("bad", "neg"), ("schade für mich", "neg"), ("two\nlines", "pos")
    ]  # fmt: skip
    assert lines == [
        "read as folder with cp1252 where UTF-8 fails (0xfc is ü), text text, label label"
        + GUESSED,
        "the folder 'unsup' has no labels, and is passed over",
        "1 file beside the folders not read",
    ]
    (tmp_path / "train/neg/9_1.txt").write_bytes(b"ok\nbad \xff\n")
    assert f"{tmp_path}/train/neg/9_1.txt: line 2: byte 0xff at column 5 is not utf-8" in failure(
        tmp_path / "train"
    )
    assert "holds the folder 'neg'; name one whose folders hold" in failure(
        tmp_path, format="folder"
    )
    flat = read(tmp_path / "train" / "unsup", need_label=False, format="folder")[0]
    assert [one.text for one in flat] == ["none"]


def test_a_link_out_of_a_folder_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    for name in ("neg/1.txt", "pos/2.txt", "..data/3.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "neg" / "3.txt").symlink_to("../..data/3.txt")
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "4.txt").write_text("four")
    (folder / "pos" / "link.txt").symlink_to(tmp_path / "secret")
    (folder / "more").symlink_to(tmp_path / "more")
    (tmp_path / "named").symlink_to(folder)

    for path in (folder, tmp_path / "named"):
        examples, lines = read(path)
        assert [one.text for one in examples] == ["neg/1.txt", "..data/3.txt", "pos/2.txt"]
        advice = "; follow_links=True reads them"
        assert f"1 link out of the folder passed over: 'more'{advice}" in lines
        assert f"1 link out of the folder passed over: 'pos/link.txt'{advice}" in lines
    examples, _ = read(folder, follow_links=True)
    assert [one.text for one in examples] == [
        "four", "neg/1.txt", "..data/3.txt", "pos/2.txt", "mine"
    ]  # fmt: skip
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a.txt").symlink_to(tmp_path / "secret")
    assert "1 link out of the folder" in failure(
        tmp_path / "links", format="folder", need_label=False
    )


def test_a_folder_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit("a folder of texts", 2, "files")
    monkeypatch.setattr("tidybert.files.folders.FOLDER_FILES", limit)
    (tmp_path / "a").mkdir()
    for number in range(3):
        (tmp_path / "a" / f"{number}.txt").write_text("x")

    assert "the limit for a folder of texts is 2" in failure(tmp_path)


def test_arrow_feather_and_a_dataset_on_disk(tmp_path: Path) -> None:
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    info = json.dumps({"info": {"features": features}})
    table = pa.table({"label": [1, 0, -1], "text": ["a", "b", "c"]})
    named = table.replace_schema_metadata({"huggingface": info})
    pyarrow.feather.write_feather(table, str(tmp_path / "plain.feather"))
    pyarrow.feather.write_feather(named, str(tmp_path / "a.feather"), compression="zstd")
    pq.write_table(named, tmp_path / "a.parquet")
    folder = saved_dataset(tmp_path / "dataset", table, features)

    assert texts(tmp_path / "plain.feather") == [("a", "1"), ("b", "0"), ("c", "-1")]
    for path in (tmp_path / "a.feather", tmp_path / "a.parquet", folder):
        assert "the label is empty" in failure(path)
        examples, lines = read(path, need_label=False)
        assert [(one.text, one.label) for one in examples] == [("a", "pos"), ("b", "neg"),
                                                               ("c", None)]  # fmt: skip
        assert "numbers in 'label' are read as the names of their classes" in lines
    splits = tmp_path / "splits"
    splits.mkdir()
    (splits / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert f"name one of '{splits}/train', '{splits}/test'" in failure(splits)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../a.feather"}]}')
    assert "names no files of this folder" in failure(folder)


def test_json_of_pandas(write: Write) -> None:
    path = write("a.json", {"text": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}})

    assert texts(path) == [("a", "x"), ("b", "y")]
    assert "columns first, as pandas' to_json() writes; rows are counted from 1" in read(path)[1]
    broken = write("b.json", {"text": {"0": "a"}, "label": {"1": "x"}})
    assert """in pandas give to_json(orient="records")""" in failure(broken)


# Labelling tools

SPANS = [(("Zoë", "lives", "in", "Old", "Town"), ("B-PER", "O", "O", "B-LOC", "I-LOC"))]
SENTENCE = "Zoë lives in Old Town"


def tags(path: Path, **options: Any) -> list[Any]:
    return [(one.words, one.tags) for one in read(path, "tag", **options)[0]]


def studio(result: list[Any], text: str = SENTENCE, **more: Any) -> dict[str, Any]:
    return {"id": 1, "data": {"text": text}, "annotations": [{"result": result}], **more}


def studio_span(start: int, end: int, label: str, text: str | None = None) -> dict[str, Any]:
    value = {"start": start, "end": end, "labels": [label], **({"text": text} if text else {})}
    return {"value": value, "from_name": "label", "to_name": "text", "type": "labels"}


def choice(*names: str, question: str = "tone") -> dict[str, Any]:
    return {"value": {"choices": list(names)}, "from_name": question, "type": "choices"}


def test_doccano(write: Write) -> None:
    for content in (
        {"id": 1, "text": SENTENCE, "label": [[0, 3, "PER"], [13, 21, "LOC"]]},
        {"text": SENTENCE, "entities": [
            {"id": 1, "label": "PER", "start_offset": 0, "end_offset": 3},
            {"id": 2, "label": "LOC", "start_offset": 13, "end_offset": 21},
        ]},
    ):  # fmt: skip
        assert tags(write("a.jsonl", [content])) == SPANS
    assert texts(write("b.jsonl", [{"text": "a", "label": ["x"]}])) == [("a", "x")]
    family = {"text": "👩‍👧 lives here", "label": [[0, 1, "PER"]]}
    assert "ends within the word '👩\\u200d👧'" in failure(write("c.jsonl", [family]), "tag")
    overlap = {"text": SENTENCE, "label": [[0, 9, "PER"], [4, 9, "LOC"]]}
    assert "a.jsonl:1: the entity 'lives' (4 to 9) overlaps the one before" in failure(
        write("a.jsonl", [overlap]), "tag"
    )


def test_label_studio(write: Write) -> None:
    spans = [studio_span(13, 21, "LOC", "Old Town"), studio_span(0, 3, "PER", "Zoë")]
    path = write("a.json", json.dumps([studio([*spans, choice("good")])]))

    assert tags(path) == SPANS
    assert texts(path) == [(SENTENCE, "good")]
    many = write("b.json", json.dumps([studio([choice("a", "b")]), studio([choice("a")])]))
    assert [one.labels for one in tidybert.load_data(many, multi_label=True)] == [
        ("a", "b"), ("a",)
    ]  # fmt: skip
    said = {"value": {"text": ["why"]}, "from_name": "note", "to_name": "text", "type": "textarea"}
    topics = [choice("good"), said, choice("price", question="topic")]
    assert texts(write("c.json", json.dumps([studio(topics)])), label="topic") == [
        (SENTENCE, "price")
    ]


def test_label_studio_counts_utf16_and_is_moved(write: Write) -> None:
    """An emoji is two units in JavaScript, and one character here."""
    text = f"😀😀 {SENTENCE}"
    path = write("a.json", json.dumps([studio([studio_span(5, 8, "PER", "Zoë")], text)]))

    examples, lines = read(path, "tag")

    assert examples[0].tags == ("O", "B-PER", "O", "O", "O", "O")
    assert lines[-1] == MOVED.format(2)
    gone = write("b.json", json.dumps([studio([studio_span(0, 3, "PER", "Ada")], text)]))
    assert "b.json:1: entity 0: its text 'Ada' is not in the text" in failure(gone, "tag")


def test_annotators_who_differ(write: Write) -> None:
    one, other = ({"result": [choice(name)]} for name in ("good", "bad"))
    task = {"data": {"text": "a"}, "annotations": [one, other]}

    told = failure(write("a.json", json.dumps([task])))

    assert "a.json:1: 2 annotations that differ, \"['good']\" and \"['bad']\"; keep one" in told
    told = failure(write("a.json", json.dumps([{**task, "id": 7}])))
    assert "and \"['bad']\", of task 7; keep one for each task" in told
    task["annotations"] = [one, one, {**other, "was_cancelled": True}]
    assert texts(write("b.json", json.dumps([task]))) == [("a", "good")]
    assert "the label is empty" in failure(
        write("c.json", json.dumps([studio([choice("x")]), {"data": {"text": "b"},
                                                           "annotations": []}]))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": {"text": "a"}, "annotations": [{"result": 5}]}, "'result' is the number 5"),
        (studio([studio_span(0, 99, "PER")]), "entity 0: 0 to 99 is not a part of a text of 21"),
        (studio([studio_span(1, 3, "PER")]), "begins within the word 'Zoë'"),
        (studio([{"value": {"start": "/p", "end": 3, "labels": ["x"]}}]), "start is '/p'; a whole"),
        (studio([{"value": {"start": 0, "end": 3, "labels": ["x", "y"]}}]), "it has 2 labels"),
        ({"data": {"text": "a"}, "annotations": []}, "null where a list of entities"),
    ],
)
def test_bad_tasks_of_label_studio(write: Write, content: Any, message: str) -> None:
    good = studio([studio_span(0, 3, "PER")])

    assert message in failure(write("a.json", json.dumps([good, content])), "tag")


def test_brat_reads_no_text_by_a_link_out_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "brat"
    folder.mkdir()
    (tmp_path / "secret").write_text("mine")
    for name in ("a", "b"):
        (folder / f"{name}.ann").write_text("T1\tX 0 1\tm\n")
    (folder / "a.txt").write_text("m")
    (folder / "b.txt").symlink_to(tmp_path / "secret")

    examples, lines = read(folder, "tag")

    assert [one.words for one in examples] == [("m",)]
    assert any("1 link out of the folder passed over: 'b.txt'" in line for line in lines)
    assert "1 link out of the folder" in failure(folder / "b.ann", "tag")


def test_brat(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{SENTENCE}\n")
    lines = "T1\tPER 0 3\tZoë\nT2\tLOC 14 22\tOld Town\nR1\tin Arg1:T1\n#1\tNote T1\tx\n"
    path = tmp_path / "a.ann"
    path.write_text(lines)

    for given in (path, tmp_path):
        assert tags(given) == SPANS
    assert read(path, "tag")[1][1:] == [
        "2 lines of relations, events, attributes or notes not read",
        MOVED.format(1),
    ]
    path.write_text("T1\tPER 0 3;4 9\tZoë lives\n")
    assert f"{path}:1: a tab, a label, one start" in failure(path, "tag")
    path.write_text("T1\tPER 0\tZoë\n")
    assert f"{path}:1: a tab, a label, one start and one end are" in failure(path, "tag")
    (tmp_path / "a.txt").unlink()
    assert "a.txt: cannot be read: no such file" in failure(path, "tag")


def test_a_docbin_is_told_what_to_export(write: Write) -> None:
    assert 'save each doc as a line {"text": …, "entities": [' in failure(
        write("a.spacy", b"x"), "tag"
    )


# A word a row, numbers of classes, questions in a table

KAGGLE = """Sentence #,Word,POS,Tag
Sentence: 1,Zoë,NNP,B-PER
,lives,VBZ,O
,in,IN,O
,Old,NNP,B-LOC
,Town,NNP,I-LOC
Sentence: 2,He,PRP,O
"""


@pytest.mark.parametrize("name", ["a.csv", "a.xlsx", "a.feather"])
def test_a_word_a_row(write: Write, tmp_path: Path, name: str) -> None:
    rows = [line.split(",") for line in KAGGLE.splitlines()]
    if name == "a.xlsx":
        path = book(tmp_path / name, *rows)
    elif name == "a.feather":
        path = tmp_path / name
        columns = dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))
        columns["Sentence #"] = [1, 1, 1, 1, 1, 2]
        pyarrow.feather.write_feather(pa.table(columns), str(path))
    else:
        path = write(name, KAGGLE)
    plain = write("a.conll", "Zoë B-PER\nlives O\nin O\nOld B-LOC\nTown I-LOC\n\nHe O\n")

    assert tags(path) == tags(plain) == [*SPANS, (("He",), ("O",))]
    lines = read(path, "tag")[1]
    assert "text Word, label Tag (text and label guessed from the names)" in lines[0]
    assert "a word a row; 'Sentence #' says which sentence it is of" in lines
    assert read(path, "tag", label="POS")[0][0].tags == ("NNP", "VBZ", "IN", "NNP", "NNP")
    assert [one.words for one in read(path, "tag", need_label=False)[0]][1] == ("He",)


@pytest.mark.parametrize("names", [("text", "labels"), ("tokens", "tags"), ("words", "ner_tags")])
def test_a_text_of_words_beside_one_of_tags(write: Write, names: tuple[str, str]) -> None:
    rows = "Zoë lives in Old Town,B-PER O O B-LOC I-LOC\nHe,O\n"
    path = write("a.csv", f"{','.join(names)}\n{rows}")

    assert tags(path) == [*SPANS, (("He",), ("O",))]
    path = write("b.csv", f"{','.join(names)}\n{rows}He ran,O\n")
    assert "b.csv:4: 2 words and 1 tag" in failure(path, "tag")


def test_a_bad_word_spoils_its_sentence_only(write: Write) -> None:
    path = write("a.csv", KAGGLE.replace(",in,IN,O", ",in,IN,").replace(",Old,", ",,"))

    assert "a.csv:4: 'Tag' is empty" in failure(path, "tag")
    report = ReadReport()
    found = read_all(task_class("tag", task_flags()()), path, need_label=True, report=report,
                     skip_bad_rows=True)  # fmt: skip
    assert [one.words for one in found] == [("He",)]
    assert report.num_problems == 1


def test_numbers_of_tags(write: Write, tmp_path: Path) -> None:
    path = write("a.jsonl", [{"tokens": ["Zoë", "lives"], "ner_tags": [1, 0]}])

    assert "put the dataset_info.json of datasets beside the file" in failure(path, "tag")
    names = {"feature": {"names": ["O", "B-PER"], "_type": "ClassLabel"}, "_type": "List"}
    write("dataset_info.json", {"features": {"ner_tags": names}})
    assert tags(path) == [(("Zoë", "lives"), ("B-PER", "O"))]
    table = pa.table({"tokens": [["Zoë", "lives"]], "ner_tags": [[1, 0]]})
    folder = saved_dataset(tmp_path / "dataset", table, {"ner_tags": names})
    assert tags(folder) == [(("Zoë", "lives"), ("B-PER", "O"))]


QUESTIONS = [("Who drinks?", "Anna drinks tea. Anna!", "Anna"), ("Why?", "She drinks.", "")]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.xlsx"])
def test_questions_in_a_table(write: Write, tmp_path: Path, name: str) -> None:
    head = ["Question", "Context", "Answer"]
    if name == "a.xlsx":
        path = book(tmp_path / name, head, *map(list, QUESTIONS))
    else:
        cell = ";" if name == "a.csv" else "\t"
        path = write(name, "".join(cell.join(row) + "\n" for row in [head, *QUESTIONS]))
    records = [dict(zip(("question", "context", "answer"), row, strict=True)) for row in QUESTIONS]
    plain = read(write("plain.jsonl", records), "answer")[0]

    found = read(path, "answer")[0]

    assert [(one.question, one.context, one.answers, one.is_impossible) for one in found] == [
        (one.question, one.context, one.answers, one.is_impossible) for one in plain
    ]
    assert found[0].answers == (("Anna", 0),)


@pytest.mark.parametrize(
    ("start", "place", "by"), [(16, 17, 1), (18, 17, 1), (99, 17, 82), (5, 0, 5), (-4, 0, 4)]
)
def test_an_answer_that_is_off_is_taken_where_it_stands(
    write: Write, start: int, place: int, by: int
) -> None:
    answer = {"text": "Anna", "answer_start": start}
    question = {"id": "1", "question": "Who?", "answers": [answer]}
    paragraph = {"context": QUESTIONS[0][1], "qas": [question]}
    path = write("a.json", {"data": [{"title": "T", "paragraphs": [paragraph]}]})

    examples, lines = read(path, "answer")

    assert examples[0].answers == (("Anna", place),)
    assert lines == [MOVED.format(by)]
    answer["text"] = "anna"
    nowhere = write("b.json", {"data": [{"paragraphs": [paragraph]}]})
    assert "the answer 'anna' is not in the context" in failure(nowhere, "answer")


def test_choices_in_a_spreadsheet(tmp_path: Path) -> None:
    head = ["sent1", "sent2", "ending0", "ending1", "label"]
    path = book(tmp_path / "a.xlsx", head, ["It rains.", "We", "take a coat", "eat", 0])

    (one,) = read(path, "choose")[0]

    assert (one.context, one.start, one.choices, one.label) == (
        "It rains.", "We", ("take a coat", "eat"), 0
    )  # fmt: skip


# Every face reads by the same function; a RUN records what was repaired.


def test_a_run_records_what_reading_repaired(
    write: Write, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [("a red cat", "x"), ("the blue dog", "y")] * 4
    bad = "a\n;;;\nb;\n;\nc\n"
    path = write("a.csv", "sep=;\ntext;label\n" + "".join(f"{a};{b}\n" for a, b in rows) + bad)
    run = tmp_path / "run"

    tidybert.finetune(
        path, model=tiny_model, out=run, max_steps=1, skip_bad_rows=True, max_seq_length=16
    )

    record = json.loads((run / "arguments.json").read_text())["record"]["read"]["train"]
    assert (record["rows"], record["left_out"]) == (8, 5)
    assert record["reasons"] == {
        "N column where the header has N": 2, "the label is empty": 2,
        "N columns where the header has N": 1,
    }  # fmt: skip
    assert "read as csv with ';'" in record["notes"][0]
    assert record["notes"][1].endswith(
        "5 rows skipped: 2 × N column where the header has N, 2 × the label is empty, "
        "1 × N columns where the header has N"
    )
    assert "1 column where the header has 2" in record["notes"][2]


def test_a_model_is_the_same_from_any_form(write: Write, tiny_model: Path, tmp_path: Path) -> None:
    rows = [("a red cat", "x"), ("the blue dog", "y")] * 4
    plain = write("a.csv", "text,label\n" + "".join(f"{a},{b}\n" for a, b in rows))
    sheet = book(tmp_path / "a.xlsx", ["text", "label"], *map(list, rows))

    answers = [
        tidybert.finetune(path, model=tiny_model, max_steps=2, seed=3, max_seq_length=16).predict(
            "a red dog"
        )
        for path in (plain, sheet)
    ]

    assert answers[0] == answers[1]


# Bad files


def test_hostile_spreadsheets(tmp_path: Path, write: Write, monkeypatch: Any) -> None:
    for content in (b"", b"PK", b"PK\3\4" + bytes(100), b"\xd0\xcf\x11\xe0" + bytes(600)):
        for name in ("a.xlsx", "a.ods", "a.xls"):
            assert "not a spreadsheet that can be read" in failure(write(name, content))
    # Two cells as far apart as they can be: 17 thousand million cells for the library.
    with xlsxwriter.Workbook(str(tmp_path / "far.xlsx")) as made:
        sheet = made.add_worksheet()
        sheet.write(0, 0, "text")
        sheet.write(1_048_575, 16_383, "x")
    assert "cannot be read within 2,147,483,648 bytes of memory" in failure(tmp_path / "far.xlsx")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("xl/workbook.xml", bytes(2**27))
    assert "bytes unpacked from each byte" in failure(write("bomb.xlsx", packed.getvalue()))
    monkeypatch.setattr("tidybert.files.sheets.SHEET_BYTES", Limit("a spreadsheet", 9, "bytes"))
    assert "the limit for a spreadsheet is 9" in failure(book(tmp_path / "b.xlsx", ["text"]))
    (tmp_path / "c.xlsx").symlink_to("/dev/zero")
    assert "it is a device" in failure(tmp_path / "c.xlsx")


def test_what_cannot_come_from_standard_input_or_packed(write: Write) -> None:
    for name in ("sheet", "parquet", "arrow", "folder"):
        assert "cannot be read from standard input or packed" in failure(Path("-"), format=name)
    assert "cannot be read from standard input or packed" in failure(write("a.xlsx.gz", b"x"))


def test_the_table_of_formats_names_each_once() -> None:
    suffixes = [suffix for row in FORMATS.values() for suffix in row.suffixes]

    assert len(suffixes) == len(set(suffixes))
    assert in_python(FORMATS["csv"].what)
    assert issubclass(LimitError, TidyBertError)
