"""What a file means, the same in every source: who rejected a row, lists in cells, numbers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.files.test_equal_forms import TABLES, Rows, objects, table, text_of
from tests.files.test_formats import choice, failure, read, studio, studio_span, tags, texts

import tidybert
from tidybert.files.reading import ReadReport
from tidybert.files.text_files import read_examples
from tidybert.tasks.classification import Classification
from tidybert.tasks.labelled_examples import read_all
from tidybert.tasks.registry import task_class, task_flags

Write = Callable[[str, Any], Path]
Source = Callable[[Path, Rows], Any]


def frame(_folder: Path, rows: Rows) -> Any:
    return pytest.importorskip("pandas").DataFrame(objects(rows))


SOURCES: dict[str, Source] = {
    **{name: TABLES[name] for name in (
        "semicolons", "Unicode text", "sheet", "feather", "parquet", "save_to_disk", "pandas"
    )},
    "csv": table(","),
    "tsv": table("\t", name="a.tsv"),
    "JSON": text_of("a.json", lambda rows: json.dumps(objects(rows))),
    "lines": text_of("a.jsonl", lambda rows: "\n".join(map(json.dumps, objects(rows)))),
    "array in lines": text_of("a.jsonl", lambda rows: json.dumps(objects(rows), indent=1)),
    "lines in JSON": text_of("a.json", lambda rows: "\n".join(map(json.dumps, objects(rows)))),
    "columns": text_of("a.json", lambda rows: json.dumps(columns(rows))),
    "frame": frame,
    "table": lambda _folder, rows: pa.Table.from_pylist(objects(rows)),
    "dicts": lambda _folder, rows: objects(rows),
}  # fmt: skip
of_every_source = pytest.mark.parametrize("source", SOURCES)


def columns(rows: Rows) -> dict[str, list[str]]:
    return dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))


def noted(data: Any, **flags: Any) -> tuple[list[Any], ReadReport]:
    """The examples, and the report on how they were read."""
    report, options = ReadReport(), task_flags()(**flags)
    return read_all(task_class("classify", options), data, report=report), report


def labels(source: str, folder: Path, given: Sequence[str], **flags: Any) -> list[Any]:
    rows = [("text", "label"), *((f"a {at}", label) for at, label in enumerate(given))]
    folder = folder / str(len(list(folder.iterdir())))
    folder.mkdir()
    found = noted(SOURCES[source](folder, rows), **flags)[0]
    return [one.labels if flags else one.label for one in found]


# Rows that their annotators did not accept

ANSWERED = [
    ("text", "label", "answer"),
    ("my invoice", "BILLING", "accept"),
    ("the router", "BILLING", "reject"),
    ("asdf", "BILLING", "ignore"),
    ("a modem", "HARDWARE", "accept"),
    ("the cable", "BILLING", "reject"),
]


@of_every_source
def test_rejected_answers_of_prodigy_are_left_out(source: str, tmp_path: Path) -> None:
    data = SOURCES[source](tmp_path, ANSWERED)

    examples, report = noted(data)

    assert [(e.text, e.label) for e in examples] == [("my invoice", "BILLING"),
                                                     ("a modem", "HARDWARE")]  # fmt: skip
    assert report.record()["reasons"] == {
        "its annotator rejected it": 2, "its annotator ignored it": 1
    }  # fmt: skip
    everything = read_all(task_class("classify", task_flags()()), data, need_label=False)
    assert len(everything) == 5


def test_accepted_options_and_spans_of_prodigy(write: Write) -> None:
    chosen = [
        {"text": "a", "options": [{"id": "X", "text": "x"}, {"id": "Y"}], "accept": ["X"],
         "answer": "accept", "_task_hash": 1},
        {"text": "b", "options": [], "accept": ["Y", "X"], "answer": "accept"},
        {"text": "c", "accept": ["X"], "answer": "reject"},
    ]  # fmt: skip
    path = write("a.jsonl", chosen)
    assert [one.labels for one in noted(path, multi_label=True)[0]] == [("X",), ("Y", "X")]
    assert "a.jsonl:2: it has 2 labels; multi_label=True reads any number" in failure(path)

    span = {"start": 0, "end": 3, "token_start": 0, "token_end": 0, "label": "PER"}
    named = [{"text": "Zoë ran", "tokens": [{"text": "Zoë"}], "spans": [span], "answer": answer}
             for answer in ("accept", "reject", "ignore")]  # fmt: skip
    assert tags(write("b.jsonl", named)) == [(("Zoë", "ran"), ("B-PER", "O"))]


def test_a_column_of_other_answers_says_nothing(write: Write) -> None:
    rows = [{"text": "a", "label": "x", "answer": "yes"}, {"text": "b", "label": "y",
                                                          "answer": "reject"}]  # fmt: skip
    assert texts(write("a.jsonl", rows)) == [("a", "x"), ("b", "y")]
    assert texts(write("a.jsonl", rows), label="answer") == [("a", "yes"), ("b", "reject")]
    rows[0]["answer"], rows[1]["answer"] = "accept", "maybe"
    assert (
        "a.jsonl:2: 'answer' is 'maybe' where accept, reject or ignore is expected; rename"
        in failure(write("a.jsonl", rows))
    )
    rows = [{"text": "a", "label": "x", "answer": "reject"}]
    assert "1 row skipped: 1 × its annotator rejected it" in failure(write("a.jsonl", rows))


@pytest.mark.parametrize("in_memory", [False, True])
def test_skipped_tasks_of_label_studio(write: Write, in_memory: bool) -> None:
    skipped = {"data": {"text": "b"}, "annotations": [{"result": [], "was_cancelled": True}],
               "predictions": [{"result": [choice("bad")]}]}  # fmt: skip
    gold = [{"result": [choice("bad")]}, {"result": [choice("good")], "ground_truth": True}]
    tasks = [studio([choice("good")], "a", predictions=[{"result": [choice("bad")]}]), skipped,
             {"data": {"text": "c"}, "annotations": gold}]  # fmt: skip

    examples, report = noted(tasks if in_memory else write("a.json", json.dumps(tasks)))

    assert [(one.text, one.label) for one in examples] == [("a", "good"), ("c", "good")]
    assert report.reasons == {"its annotators skipped it": 1}
    assert any("1 annotation beside a ground truth not read" in line for line in report.lines())
    predicted = {"data": {"text": "d"}, "predictions": skipped["predictions"]}
    assert "the label is empty" in failure(write("b.json", json.dumps([*tasks, predicted])))
    named = [studio([studio_span(0, 3, "PER")], "Zoë ran"), {**skipped, "data": {"text": "Zoë"}}]
    assert tags(write("c.json", json.dumps(named))) == [(("Zoë", "ran"), ("B-PER", "O"))]


def test_records_of_argilla(write: Write) -> None:
    def record(text: str, *responses: Any) -> dict[str, Any]:
        given = [{"value": value, "status": status} for value, status in responses]
        return {"fields": {"text": text}, "responses": {"tone": given},
                "suggestions": {"tone": {"value": "bad"}}}  # fmt: skip

    path = write("a.json", json.dumps([
        record("a", ("good", "submitted"), ("bad", "draft")),
        record("b", ("bad", "discarded")),
        record("c", ("bad", "submitted")),
    ]))  # fmt: skip

    examples, report = noted(path)

    assert [(one.text, one.label) for one in examples] == [("a", "good"), ("c", "bad")]
    assert report.reasons == {"its annotators skipped it": 1}
    differing = record("d", ("bad", "submitted"), ("good", "submitted"))
    assert "2 annotations that differ" in failure(write("b.json", json.dumps([differing])))


def test_documents_of_brat_without_a_span_are_counted(tmp_path: Path) -> None:
    for name, line in (("a", "T1\tPER 0 3\tZoë\n"), ("b", "")):
        (tmp_path / f"{name}.txt").write_text("Zoë ran")
        (tmp_path / f"{name}.ann").write_text(line)

    examples, lines = read(tmp_path, "tag")

    assert [one.tags for one in examples] == [("B-PER", "O"), ("O", "O")]
    assert "1 document without a span: without entities" in lines


# Labels that all cells of a column together show

SPELT = {
    "pandas": ["['x', 'y']", "['x']", "[]"],
    "JSON": ['["x", "y"]', '["x"]', "[]"],
    "numpy": ["['x' 'y']", "['x']", "[]"],
    "numpy over lines": ["['x'\n 'y']", "['x']", "[]"],
    "numpy's texts": ["[np.str_('x'), np.str_('y')]", "[np.str_('x')]", "[]"],
    "arrays": ["array(['x', 'y'], dtype=object)", "array(['x'], dtype='<U1')", "[]"],
    "sets": ["{'x', 'y'}", "{'x'}", "set()"],
    "tuples": ["('x', 'y')", "('x',)", "()"],
    "cats": ["{'x': 1.0, 'y': 1.0}", "{'x': 1.0, 'y': 0.0}", "{'x': 0, 'y': 0}"],
}


@of_every_source
@pytest.mark.parametrize("spelling", ["pandas", "numpy"])
def test_lists_in_cells(source: str, spelling: str, tmp_path: Path) -> None:
    assert labels(source, tmp_path, SPELT[spelling], multi_label=True) == [("x", "y"), ("x",), ()]
    assert labels(source, tmp_path, ["['x']", "[1.0]"]) == ["x", "1"]


@pytest.mark.parametrize("spelling", SPELT)
def test_spellings_of_lists(spelling: str, tmp_path: Path) -> None:
    rows = [("text", "label"), *(("a", cell) for cell in SPELT[spelling])]
    path = SOURCES["lines"](tmp_path, rows)

    examples, report = noted(path, multi_label=True)

    assert [one.labels for one in examples] == [("x", "y"), ("x",), ()]
    assert f"labels such as {SPELT[spelling][0][:40]!r} are read as lists" in report.notes
    told = failure(path)
    assert "a.jsonl:1: it has 2 labels; multi_label=True reads any number of them" in told
    assert "a.jsonl:3: the label is empty" in told


def test_a_column_of_which_one_cell_is_no_list_stays_as_it_is(tmp_path: Path) -> None:
    given = ["['x']", "[sic]", "", "[1"]

    assert labels("dicts", tmp_path, ["['x']", "[sic]"]) == ["['x']", "[sic]"]
    assert labels("csv", tmp_path, given, multi_label=True) == [("['x']",), ("[sic]",), (), ("[1",)]


@pytest.mark.parametrize("source", ["csv", "parquet", "frame"])
def test_lists_of_0_and_1_are_places(source: str, tmp_path: Path) -> None:
    flags = ["[1, 0, 1]", "[0, 0, 1]", "[0 0 0]"]
    assert labels(source, tmp_path, flags, multi_label=True) == [("0", "2"), ("2",), ()]
    # Numbers of labels are no flags.
    assert labels(source, tmp_path, ["[1, 0]", "[2]"], multi_label=True) == [("1", "0"), ("2",)]


def test_lists_of_0_and_1_in_json(write: Write) -> None:
    path = write("a.jsonl", [{"text": "a", "label": [1, 0, 1]}, {"text": "b", "label": [0, 1, 0]}])

    examples, report = noted(path, multi_label=True)

    assert [one.labels for one in examples] == [("0", "2"), ("1",)]
    assert "labels are lists of 0 and 1: each 1 is the label of its place, from 0" in report.notes


@of_every_source
@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["0.0", "1.0", "", "0"], ["0", "1", "0"]),
        (["True", "FALSE", "true"], ["true", "false", "true"]),
        (["1.0", "1.10"], ["1.0", "1.10"]),
        (["1.0", "one"], ["1.0", "one"]),
        (["1", "2", "spam", "2.0"], ["1", "2", "spam", "2.0"]),
    ],
)
def test_numbers_have_one_spelling(
    source: str, given: list[str], read: list[str], tmp_path: Path
) -> None:
    rows = [("text", "label"), *((f"a {at}", one) for at, one in enumerate(given))]
    report, task = ReadReport(), task_class("classify", task_flags()())

    found = read_all(task, SOURCES[source](tmp_path, rows), skip_bad_rows=True, report=report)

    assert [one.label for one in found] == read
    kept = [one for one in given if one]
    assert any("are read as" in note for note in report.notes) == (read != kept)


@pytest.mark.parametrize(
    ("known", "given", "expected"),
    [
        (("0", "1"), ["1.0", "0.0"], ["1", "0"]),
        # A RUN that learned 1.0 has this name.
        (("0.0", "1.0"), ["1.0", "0.0"], ["1.0", "0.0"]),
        (("0.0", "1.0"), ["1", "0"], ["1.0", "0.0"]),
        (("False", "True"), ["true", "False"], ["True", "False"]),
        (("1.0", "1.10", "beta"), ["1.0", "1.10"], ["1.0", "1.10"]),
        (("1.0", "beta"), ["1.0", "1.0"], ["1.0", "1.0"]),
        (("__label__1", "__label__2"), ["1", "2"], ["__label__1", "__label__2"]),
    ],
)
def test_a_model_keeps_its_names(
    known: tuple[str, ...], given: list[str], expected: list[str], write: Write
) -> None:
    path = write("a.csv", "text,label\n" + "".join(f"a,{one}\n" for one in given))

    assert [one.label for one in read_all(Classification(known), path)] == expected


def test_a_frame_and_its_csv_have_the_same_labels(tiny_model: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = {"text": ["a red cat", "the dog", "?"], "label": [0.0, 1.0, 0.0]}
    data = pandas.DataFrame({**rows, "answer": ["accept", "accept", "reject"]})
    data.to_csv(tmp_path / "a.csv", index=False)
    run = tmp_path / "run"

    model = tidybert.finetune(data, model=tiny_model, out=run, max_steps=1, max_seq_length=16)

    assert model.task.names == ("0", "1")
    for task in (model.task, Classification):
        assert [one.label for one in read_all(task, tmp_path / "a.csv")] == ["0", "1"]
    record = json.loads((run / "arguments.json").read_text())["record"]["read"]["train"]
    assert (record["rows"], record["left_out"]) == (2, 1)
    assert record["reasons"] == {"its annotator rejected it": 1}


# fastText

FASTTEXT = "__label__x __label__y my invoice\n__label__x  the router \n"


@pytest.mark.parametrize("name", ["a.txt", "a.train", "train"])
def test_fasttext_with_several_labels(name: str, write: Write) -> None:
    path = write(name, FASTTEXT)

    found = noted(path, multi_label=True)[0]

    assert [(e.text, e.labels) for e in found] == [("my invoice", ("x", "y")),
                                                   ("the router", ("x",))]  # fmt: skip
    assert f"{path}:1: it has 2 labels; multi_label=True reads any" in failure(path)
    one = write(name, "__label__x a b\n__label__y c __label__y\nd\n")
    assert f"{one}:3: the label is empty" in failure(one)
    assert texts(write(name, "__label__x a b\n__label__y c d\n")) == [("a b", "x"), ("c d", "y")]


def test_a_model_that_learned_the_mark_of_fasttext_keeps_it(write: Write) -> None:
    task = Classification(("__label__x", "__label__y"))

    found = read_all(task, write("a.txt", "__label__x a b\n"))

    assert [one.label for one in found] == ["__label__x"]


# Headers of numbers, titles, what is empty


@pytest.mark.parametrize("source", ["csv", "semicolons", "tsv", "sheet", "Unicode text", "parquet",
                                    "JSON", "frame", "dicts"])  # fmt: skip
def test_a_name_wins_over_a_number(source: str, tmp_path: Path) -> None:
    rows = [("", "0", "1"), ("0", "the cat", "x"), ("1", "a dog", "y")]
    data = SOURCES[source](tmp_path, rows)

    found = tidybert.load_data(data, text="0", label="1")

    assert [(one.text, one.label) for one in found] == [("the cat", "x"), ("a dog", "y")]


def test_a_header_of_numbers(write: Write) -> None:
    path = write("a.csv", "0,1\nthe cat,x\na dog,y\n")
    for text, label in ((0, 1), ("0", "1")):
        assert texts(path, text=text, label=label) == [("the cat", "x"), ("a dog", "y")]
    index = write("b.csv", ",0,1\n0,the cat,x\n")
    assert "column 0 and the column named '0' are not the same" in failure(index, text=0, label=1)
    assert texts(index, text=1, label=2, header=True) == [("the cat", "x")]
    assert texts(write("c.csv", "1,2\n3,4\n"), text=0, label=1, header=False)[0] == ("1", "2")
    # A row of data is no header, though it has these numbers.
    assert texts(write("d.csv", "one,1,0\ntwo,1,1\n"), text="0", label="1")[0] == ("one", "1")


@pytest.mark.parametrize("source", ["csv", "semicolons", "tsv", "sheet"])
def test_a_title_above_the_header_and_empty_rows_at_the_end(source: str, tmp_path: Path) -> None:
    rows = [("Survey 2024", ""), ("", ""), ("text", "label"), ("a b", "x"), ("c d", "y"),
            ("", ""), ("", "")]  # fmt: skip
    path = SOURCES[source](tmp_path, rows)

    flags = {"delimiter": ";"} if source == "semicolons" else {}

    assert texts(path, **flags) == [("a b", "x"), ("c d", "y")]
    assert any("above the columns' names passed over" in one for one in read(path, **flags)[1])


def test_empty_rows_between_others_are_told(write: Write) -> None:
    path = write("a.csv", "text,label\na,x\n,\nb,y\n,\n")

    assert "1 row cannot be read:" in failure(path)
    assert "a.csv:3: the label is empty" in failure(path)


def test_what_mysql_writes(write: Write) -> None:
    path = write("a.csv", 'text,label\n"he said \\"hi\\", then \\\\",x\n"c d",y\n\\N,y\ne,\\N\n')

    told = failure(path)

    assert "a.csv:4: 'text' is null" in told
    assert "a.csv:5: the label is empty" in told
    report = ReadReport()
    rows = read_examples(path, need_label=True, skip_bad_rows=True, report=report)
    assert [one.text for one in rows] == ['he said "hi", then \\', "c d"]
    assert 'read as csv with \\" for a quote' in report.lines()[0]
    assert "'text' is null" in failure(write("a.tsv", "text\tlabel\n\\N\tx\n"))


# JSON in other shapes

ROWS = [{"text": "a b", "label": "x"}, {"text": "c d", "label": "y"}]
COLUMNS = {"text": ["a b", "c d"], "label": ["x", "y"]}
CLASSES = {"feature_idx": 1, "name": "label", "type": {"names": ["x", "y"], "_type": "ClassLabel"}}


@pytest.mark.parametrize(
    "content",
    [
        ROWS,
        {"data": ROWS, "version": 1},
        {"version": 1, "examples": ROWS},
        {"schema": {"fields": []}, "data": ROWS},
        {"columns": ["text", "label"], "index": [0, 1], "data": [["a b", "x"], ["c d", "y"]]},
        COLUMNS,
        {"features": [CLASSES], "rows": [
            {"row_idx": at, "row": {"text": one["text"], "label": at}, "truncated_cells": []}
            for at, one in enumerate(ROWS)
        ]},
        [[one["text"], {"cats": {"x": one["label"] == "x", "y": one["label"] == "y"}}]
         for one in ROWS],
        [{"text": one["text"], "cats": {one["label"]: 1.0, "z": 0.0}} for one in ROWS],
        [{"data": {"text": one["text"]}, "label": one["label"]} for one in ROWS],
        [{"text": one["text"], "tone": {"choices": [one["label"]]}} for one in ROWS],
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.data"])
@pytest.mark.parametrize("indent", [None, 2])
def test_shapes_of_json(content: Any, name: str, indent: int | None, write: Write) -> None:
    is_choice = isinstance(content, list) and "tone" in content[0]
    if (name, content, indent) == ("a.jsonl", COLUMNS, None):
        pytest.skip("a line may be a row of lists")

    found = texts(write(name, json.dumps(content, indent=indent)),
                  **({"label": "tone"} if is_choice else {}))  # fmt: skip

    assert found == [("a b", "x"), ("c d", "y")]


def test_lists_of_objects_beside_a_text_are_no_rows(write: Write) -> None:
    more: dict[str, Any] = {"items": [{"sku": 1}], "data": [{"a": "b"}]}
    for others in (more, {"id": {"0": 1}}):
        rows = [{**others, **one} for one in ROWS]
        for number in (1, 2):
            lines = "\n".join(map(json.dumps, rows[:number]))
            assert texts(write("a.jsonl", lines)) == [("a b", "x"), ("c d", "y")][:number]
    mails = [{**more, "mail": one["text"], "label": one["label"]} for one in ROWS]
    path = write("a.jsonl", "\n".join(map(json.dumps, mails)))
    assert texts(path, text="mail") == [("a b", "x"), ("c d", "y")]


def test_objects_over_lines(write: Write) -> None:
    path = write("a.jsonl", "\n".join(json.dumps(one, indent=1) for one in ROWS))

    assert texts(path) == [("a b", "x"), ("c d", "y")]
    assert read(path)[1][0].startswith("read as jsonl with values over lines, text text")
    assert texts(write("b.json", json.dumps(ROWS[0]))) == [("a b", "x")]


def test_json_that_has_no_plain_meaning(write: Write) -> None:
    by_class = {"x": ["a", "b"], "y": ["c"]}
    assert 'where texts stand by class, give {"text": …, "label": …} each' in failure(
        write("a.json", json.dumps(by_class))
    )
    cut = {"rows": [{"row_idx": 0, "row": ROWS[0], "truncated_cells": ["text"]}]}
    assert "a.json:1: cells are cut short: ['text']" in failure(write("a.json", json.dumps(cut)))
    assert "an array of arrays; expected an array of objects" in failure(
        write("a.json", '[["a", "x"]]')
    )


def test_a_table_in_memory_has_the_names_of_its_classes() -> None:
    info = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    data = pa.table({"text": ["a", "b", "c"], "label": [1, 0, -1]})
    data = data.replace_schema_metadata({"huggingface": json.dumps(info)})

    assert [one.label for one in tidybert.load_data(data, labelled=False)] == ["pos", "neg", None]


# Tags

CONLLU = """# sent_id = 1
# text = Die Katze geht zum Haus.
1\tDie\tder\tDET\tART\t_\t2\tdet\t_\t_
2-3\tzum\t_\t_\t_\t_\t_\t_\t_\t_
2\tzu\tzu\tADP\tAPPR\t_\t4\tcase\t_\t_
3\tdem\tder\tDET\tART\t_\t4\tdet\t_\tSpaceAfter=No
3.1\tes\tes\tPRON\t_\t_\t_\t_\t_\t_

# text = 10 000 Tage
1\t10 000\t10000\tNUM\tCARD\t_\t2\tnum\t_\t_
2\tTage\tTag\tNOUN\tNN\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("name", ["a.conllu", "a.conll", "a.tsv", "a.txt", "ud"])
@pytest.mark.parametrize("has_comments", [True, False])
def test_conllu(name: str, has_comments: bool, write: Write) -> None:
    lines = [line for line in CONLLU.splitlines() if has_comments or line[:1] != "#"]
    path = write(name, "\n".join(lines) + "\n")

    assert tags(path) == [
        (("Die", "zu", "dem"), ("DET", "ADP", "DET")), (("10 000", "Tage"), ("NUM", "NOUN"))
    ]  # fmt: skip
    assert tags(path, text=2, label=4)[0] == (("der", "zu", "der"), ("ART", "APPR", "ART"))
    counted = "3 comments, " if has_comments else ""
    assert f"CoNLL-U; left out: {counted}1 range, 1 empty node" in read(path, "tag")[1]
    if name == "a.conllu":
        words = [one.words for one in read(path, "tag", need_label=False)[0]]
        assert words == [("Die", "zu", "dem"), ("10 000", "Tage")]


def test_a_number_sign_is_a_word_elsewhere(write: Write) -> None:
    path = write("a.conll", "# O\n1 O\nZoë B-PER\n")

    assert tags(path) == [(("#", "1", "Zoë"), ("O", "O", "B-PER"))]


@pytest.mark.parametrize("source", ["csv", "tsv", "sheet", "parquet", "lines", "frame", "dicts"])
@pytest.mark.parametrize(
    ("words", "marks"),
    [("['Zoë', 'ran']", "['B-PER', 'O']"), ("['Zoë' 'ran']", "['B-PER' 'O']"),
     ('["Zoë", "ran"]', '["B-PER", "O"]')],
)  # fmt: skip
def test_lists_of_words_in_cells(source: str, words: str, marks: str, tmp_path: Path) -> None:
    path = SOURCES[source](tmp_path, [("tokens", "ner_tags"), (words, marks)])
    flags: dict[str, Any] = {"format": "tsv", "quoting": True} if source == "tsv" else {}

    (found,) = tidybert.load_data(path, "tag", **flags)

    assert (found.words, found.tags) == (("Zoë", "ran"), ("B-PER", "O"))


@pytest.mark.parametrize("marks", ["[(0, 3, 'PER')]", '[{"start": 0, "end": 3, "label": "PER"}]'])
def test_spans_in_cells(marks: str, tmp_path: Path) -> None:
    path = SOURCES["csv"](tmp_path, [("text", "entities"), ("Zoë ran", marks)])

    assert tags(path) == [(("Zoë", "ran"), ("B-PER", "O"))]


# Files without a telling suffix

MAILS = "".join(
    f"{'spam' if at % 3 else 'ham'}\tmail {at}, of {at + 1} words; or more\n" for at in range(30)
)


@pytest.mark.parametrize("name", ["SMSCollection", "a.data", "a.txt"])
def test_a_label_a_tab_and_a_text(name: str, write: Write) -> None:
    path = write(name, MAILS)

    assert texts(path)[0] == ("mail 0, of 1 words; or more", "ham")
    assert len(texts(path)) == 30
    assert "no header; column 0 is the label, for its words come again" in read(path)[1]
    turned = "".join("\t".join(line.split("\t")[::-1]) + "\n" for line in MAILS.splitlines())
    assert texts(write(name, turned))[1] == ("mail 1, of 2 words; or more", "spam")
    # Names that are not known are no label of a text.
    told = failure(write(name, "Kategorie\tMail\n" + MAILS))
    assert "cannot tell which column holds the text. Columns seen: 0 'Kategorie', 1" in told
    headed = texts(write(name, "label\ttext\n" + MAILS))
    assert headed[0] == ("mail 0, of 1 words; or more", "ham")


def test_a_label_and_a_text_on_each_line(write: Write) -> None:
    lines = [f"{('DESC:def', 'NUM', 'LOC')[at % 3]} What is word {at} ?" for at in range(20)]
    assert texts(write("TREC.all", "\n".join(lines) + "\n"))[1] == ("What is word 1 ?", "NUM")
    numbers = "".join(f"{at % 2} What is {at} ?\n" for at in range(20))
    assert texts(write("a.all", numbers))[:2] == [("What is 0 ?", "0"), ("What is 1 ?", "1")]
    names = "text,label\n" + "".join(f"word {at},x\n" for at in range(3))
    assert texts(write("export", names))[0] == ("word 0", "x")
    # Sentences often begin alike, too, and a header does once.
    for content in (
        "Art der Mail\n" + numbers,
        "What is it ? I ask what\nHow is it ? And how\n" * 20,
        "a b\nc d\n",
        "PK\3\4",
    ):
        told = failure(write("a.all", content))
        assert "the suffix '.all' does not tell the format, and the first lines do not" in told
    assert read(write("b", MAILS), need_label=False)[0][0].text.startswith("ham\tmail")


@pytest.mark.parametrize(("task", "name"), [("tag", "eng.testa"), ("answer", "dev"),
                                            ("answer", "dev.v1")])  # fmt: skip
def test_other_tasks_judge_by_content(task: str, name: str, write: Write) -> None:
    asked = {"question": "Who ran?", "context": "Zoë ran", "id": "1", "answers": ["Zoë"]}
    squad = {
        "data": [{"title": "T", "paragraphs": [{"context": asked["context"], "qas": [asked]}]}]
    }
    content = {"eng.testa": "Zoë B-PER\nran O\n", "dev": json.dumps(asked) + "\n"}
    path = write(name, content.get(name, json.dumps(squad)))

    (found,) = read(path, task)[0]

    assert getattr(found, "words" if task == "tag" else "context")[0][0] == "Z"
