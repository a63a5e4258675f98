"""Readers: each format, header and column rules, bad input by file and line, published files."""

import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidybert.errors import DataError, LimitError, UsageError, in_python
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_examples import TextExample, label_names
from tidybert.files.text_files import read_examples
from tidybert.options import flags_of
from tidybert.storage.limits import Limit


def read(path: Path | str, *, need_label: bool = True, **fields: Any) -> list[TextExample]:
    return list(read_examples(path, ReadOptions(**fields), need_label=need_label))


def failure(path: Path | str, *, need_label: bool = True, scores: bool = False, **fields: Any):
    with pytest.raises((DataError, UsageError)) as caught:
        list(read_examples(path, ReadOptions(**fields), need_label=need_label, scores=scores))
    return str(caught.value)


# Formats


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"one, two",x\r\nthree,y\n'),
        ("a.csv.gz", 'text,label\n"one, two",x\nthree,y\n'),
        ("a.tsv", "text\tlabel\none, two\tx\nthree\ty"),
        ("a.tsv.gz", "text\tlabel\none, two\tx\nthree\ty\n"),
        ("a.jsonl", '\ufeff{"text": "one, two", "label": "x"}\n{"label": "y", "text": "three"}\n'),
        ("a.jsonl.gz", '{"text": "one, two", "label": "x"}\n{"label": "y", "text": "three"}\n'),
        ("a.json", '[{"text": "one, two", "label": "x"},\n {"text": "three", "label": "y"}]\n'),
        (
            "a.json.gz",
            '{"0": {"text": "one, two", "label": "x"}, "1": {"text": "three", "label": "y"}}',
        ),
    ],
)
def test_formats_by_suffix(write, name, content):
    examples = read(write(name, content))
    assert [(e.text, e.text_pair, e.label) for e in examples] == [
        ("one, two", None, "x"),
        ("three", None, "y"),
    ]


def test_rows_are_lines_of_the_file(write):
    assert [e.row for e in read(write("a.csv", 'text,label\n"a\nb",x\n\nc,y\n'))] == [2, 5]
    assert [
        e.row for e in read(write("a.jsonl", '{"text":"a","label":1}\n\n{"text":"b","label":2}'))
    ] == [1, 3]
    array = '[\n {"text": "a",\n  "label": 1},\n {"text": "b", "label": 2}\n]'
    assert [e.row for e in read(write("a.json", array))] == [2, 4]


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    table = pa.table({"id": [1, 2], "text": ["a\n b", "é"], "label": [0, 1]})
    pq.write_table(table, path)
    expected = [TextExample("a\n b", None, "0", 1), TextExample("é", None, "1", 2)]
    assert read(path) == expected
    assert read(path, text="1", label=2) == expected
    assert "no such column" in failure(path, text="txet")
    assert "is the number 1 where a text is expected" in failure(path, text="id")
    pq.write_table(pa.table({"text": ["a"], "label": [None]}), path)
    assert f"{path}:1: the label is empty" in failure(path)
    path.write_bytes(b"PAR1 not really")
    assert "not a Parquet file" in failure(path)


def test_plain_lines(write):
    path = write("a.txt", "first\u2028still first\x85\r\n\n third\tcell\n")
    assert [e.text for e in read(path, need_label=False)] == [
        "first\u2028still first\x85",
        "",
        " third\tcell",
    ]
    assert "has no labels" in failure(path)
    assert "text has no meaning for format='text'" in failure(path, need_label=False, text=0)


def test_label_text(write):
    path = write("a.all", "ham\tGo until  June\n1 How far ?\nspam\t\n")
    examples = read(path, format="label-text")
    assert [(e.label, e.text) for e in examples] == [
        ("ham", "Go until  June"),
        ("1", "How far ?"),
        ("spam", ""),
    ]
    assert ":1: a label, white space" in failure(
        write("b.all", "word\n x y\n"), format="label-text"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [("plain {text}\n{}\n", ["plain {text}", "{}"]), ('{"text": "json"}\n', ["json"])],
)
def test_standard_input(monkeypatch, content, expected):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    report = ReadReport()
    examples = list(read_examples("-", need_label=False, report=report))
    assert [e.text for e in examples] == expected
    assert report.guessed[0] == "format"
    assert "judged by the first byte" in report.notes[0]


def test_standard_input_stops_at_the_first_bad_row(monkeypatch):
    def lines():
        yield b'{"text": "a"}\n'
        yield b"{\n"
        raise AssertionError("read on after a bad row")

    class Stream(io.RawIOBase):
        def __init__(self):
            self.source = lines()

        def readable(self):
            return True

        def readinto(self, buffer):
            line = next(self.source)
            buffer[: len(line)] = line
            return len(line)

    class Standard:
        buffer = io.BufferedReader(Stream())

    monkeypatch.setattr("sys.stdin", Standard)
    stream = read_examples("-", need_label=False)
    assert next(stream).text == "a"
    with pytest.raises(DataError, match="-:2: not JSON"):
        next(stream)


@pytest.mark.parametrize("other", ["swag", "conll"])
def test_formats_of_other_tasks_are_refused(write, other):
    assert f"format={other!r}: texts are read from csv," in failure(
        write("a.csv", "text,label\na,b\n"), format=other
    )


# Columns and headers


def test_columns_by_name_and_by_number(write):
    path = write("a.tsv", "id\tbody\t0\nx\tsome text\tpos\n")
    expected = [TextExample("some text", None, "pos", 2)]
    assert read(path, text="body", label="2") == expected
    assert read(path, text="1", label=2, header=True) == expected
    # A name in the header wins over a number; an int is always a number.
    assert read(path, text="body", label="0") == expected
    assert read(path, text="body", label=0)[0].label == "x"


def test_numbers_alone_mean_no_header_and_eat_no_row(write):
    path = write("a.csv", "good,1\nbad,0\nfine,1\n")
    report = ReadReport()
    options = ReadOptions(text=0, label=1)
    assert len(list(read_examples(path, options, need_label=True, report=report))) == 3
    assert report.header is False
    assert report.notes == ["no header: the first row is read as data"]


def test_numbers_with_a_first_row_that_looks_like_names_ask(write):
    path = write("a.csv", "comment,Label\nbad,0\nfine,1\n")
    assert "header or header=False" in failure(path, text=0, label=1)
    assert [e.row for e in read(path, text=0, label=1, header=True)] == [2, 3]
    assert [e.row for e in read(path, text=0, label=1, header=False)] == [1, 2, 3]


def test_a_first_label_that_comes_once_is_noted(write):
    path = write("a.csv", "comment,tone\nbad,0\nfine,1\nworse,0\n")
    report = ReadReport()
    list(read_examples(path, ReadOptions(text=0, label=1), need_label=True, report=report))
    assert "'tone' is in no other row" in report.notes[-1]


def test_missing_columns_list_what_is_there(write):
    path = write("a.csv", "id,words,kind\n1,a,b\n")
    message = failure(path)
    assert "cannot tell which column holds the text" in message
    assert "0 'id', 1 'words', 2 'kind'" in message
    assert "text COLUMN" in message
    assert "did you mean 'words'?" in failure(path, text="wrods", label="kind")
    assert "the first column is 0" in failure(path, text="words", label="3")
    assert "columns are given by number" in failure(path, text="words", label=2, header=False)
    assert "must name different columns" in failure(path, text="words", label="words")
    assert "several columns have this name" in failure(
        write("b.csv", "x,x,y\n1,2,3\n"), text="x", label="y"
    )


def test_delimiter_is_suggested(write):
    assert "delimiter=';'" in failure(write("b.csv", "text;label\na;b\nc;d;e\n"))
    path = write("a.csv", "text;label\na;b\n")
    assert read(path, delimiter="semicolon") == read(path, delimiter=";")


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("index\tsentence1\tsentence2\tlabel", ("sentence1", "sentence2", "label")),
        ("index\tquestion\tsentence\tlabel", ("question", "sentence", "label")),
        ("sentence\tlabel", ("sentence", None, "label")),
        ("text\tText Pair\tlabel", ("text", "Text Pair", "label")),
        ("id\tquery\tdocument\tlabel", ("query", "document", "label")),
        ("question\tpassage\tlabel", ("question", "passage", "label")),
        ("label\ttext_a", ("text_a", None, "label")),
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", ("#1 String", "#2 String", "Quality")),
        ("Text\tCategory", ("Text", None, "Category")),
        ("utterance\tintent", ("utterance", None, "intent")),
        ("id\tComment Text\ttopic", ("Comment Text", None, "topic")),
        ("tweet\tauthor\tsentiment", ("tweet", None, "sentiment")),
        ("body\tteam", ("body", None, "team")),
        (
            "sentence_A\tsentence_B\trelatedness_score",
            ("sentence_A", "sentence_B", "relatedness_score"),
        ),
        # A common name wins over one that more often means something else.
        ("title\ttext\ttopic\tlabel", ("text", None, "label")),
    ],
)
def test_columns_are_guessed_and_the_guess_is_told(write, header, columns):
    path = write("a.tsv", header + "\n" + "\t".join(header.upper().split("\t")) + "\n")
    report = ReadReport()
    list(read_examples(path, need_label=True, report=report))
    text, pair, label = columns
    assert report.columns == {"text": text, "label": label} | ({"text_pair": pair} if pair else {})
    assert set(report.guessed) == set(report.columns)
    assert "guessed from the names" in in_python(report.lines()[0])


@pytest.mark.parametrize(
    "header", ["text\tmessage\tlabel", "text\tlabel\tclass", "text\tsentence1\tsentence2\tlabel"]
)
def test_nothing_ambiguous_is_guessed(write, header):
    assert "cannot tell" in failure(write("a.tsv", header + "\n" + header + "\n"))


def test_a_pair_is_not_guessed_where_the_text_is_given(write):
    path = write("a.tsv", "sentence1\tsentence2\tlabel\na\tb\tc\n")
    assert read(path, text="sentence1") == [TextExample("a", None, "c", 2)]


def test_labels_are_not_needed_for_prediction(write):
    path = write("a.csv", "text\nonly\n")
    assert read(path, need_label=False) == [TextExample("only", None, None, 2)]
    report = ReadReport()
    options = ReadOptions(text="text", label="label")
    assert len(list(read_examples(path, options, need_label=False, report=report))) == 1
    assert "read without labels" in report.notes[0]


# Quoting


def test_quotes_are_data_between_tabs_and_syntax_between_commas(write):
    line = '"a" b\tx\n'
    assert read(write("a.tsv", "text\tlabel\n" + line))[0].text == '"a" b'
    assert read(write("a.csv", 'text,label\n"a ""b""",x\n'))[0].text == 'a "b"'
    assert read(write("a.csv", 'text,label\n"a,x\n'), quoting=False)[0].text == '"a'
    assert read(write("a.tsv", 'text\tlabel\n"a\tb"\tx\n'), quoting=True)[0].text == "a\tb"


def test_ragged_rows(write):
    path = write("a.tsv", 'text\tlabel\nok\tx\nshort\nlo\tn\tg\n"a\n')
    message = failure(path)
    assert f"{path}: 3 rows cannot be read:" in message
    assert f"{path}:3: 1 column where the header has 2" in message
    assert f"{path}:4: 3 columns" in message
    assert "give quoting" in message


def test_extra_columns_without_a_header_are_noted(write):
    path = write("a.tsv", "a\tx\nb\ty\textra\nc\n")
    report = ReadReport()
    options = ReadOptions(text=0, label=1)
    examples = list(
        read_examples(path, options, need_label=True, skip_bad_rows=True, report=report)
    )
    assert [e.text for e in examples] == ["a", "b"]
    assert [p.row for p in report.problems] == [3]
    assert any("1 row of another width than the first (line 2" in note for note in report.notes)


def test_unclosed_quote(write):
    path = write("a.csv", 'text,label\nfine,x\n"never closed,y\nlost,z\n')
    message = failure(path)
    assert f"{path}:3: lines 3-4 cannot be parsed: a quote is never closed" in message
    assert "text follows a closing quote" in failure(write("b.csv", 'text,label\n"a"b,x\n'))


# Bad input


def test_problems_are_counted_and_five_shown(write):
    path = write("a.jsonl", '{"text": "a", "label": "x"}\n' + "{oops\n" * 7)
    stream = read_examples(path, need_label=True)
    assert next(stream).text == "a"
    with pytest.raises(DataError) as caught:
        next(stream)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("7 rows cannot be read:")
    assert lines[1].startswith(f"  {path}:2: not JSON: ")
    assert len(lines) == 8
    assert lines[6] == "  and 2 more"
    assert "skip_bad_rows" in lines[7]


def test_skip_bad_rows_reports_how_many_and_which(write):
    path = write(
        "a.jsonl",
        '{"text": "a", "label": 1}\n[]\n{"text": 3, "label": 1}\n{"text": "b", "label": 2}\n',
    )
    report = ReadReport()
    examples = list(read_examples(path, need_label=True, skip_bad_rows=True, report=report))
    assert [e.text for e in examples] == ["a", "b"]
    assert (report.num_examples, report.num_problems) == (2, 2)
    assert [p.row for p in report.problems] == [2, 3]
    assert report.lines()[1] == (
        f"{path}: 2 rows skipped: 1 × a list where an object is expected, "
        "1 × 'text' is the number N where a text is expected"
    )
    assert "a list where an object is expected" in report.lines()[2]
    with pytest.raises(DataError, match="No row is left"):
        list(read_examples(write("b.jsonl", "{\n"), need_label=True, skip_bad_rows=True))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"}', "no key 'label' among 'text'"),
        ('{"label": "a"}', "no key 'text'"),
        ('{"text": null, "label": "a"}', "'text' is null where a text is expected"),
        ('{"text": 5, "label": "a"}', "is the number 5 where"),
        ('{"text": ["a"], "label": "a"}', "is a list where"),
        ('{"text": "a", "label": ["a", "b"]}', "it has 2 labels; multi_label=True reads"),
        ('{"text": "a", "label": []}', "the label is empty"),
        ('{"text": "a", "label": NaN}', "the label is the number nan"),
        ('{"text": "a", "label": null}', "the label is empty"),
        ('{"text": "a", "label": " "}', "the label is empty"),
        ('{"text": "\\ud83d", "label": "a"}', "lone surrogate"),
        ('{"text": "a", "label": "\\ud83d"}', "the label is a text with a lone surrogate"),
        ('{"text": "a", "label": "b"', "not JSON"),
        ("[" * 100_000, "cannot be read"),
        ('{"text": "a", "label": ' + "1" * 5000 + "}", "cannot be read"),
        ("null", "null where an object is expected"),
    ],
)
def test_bad_json_lines(write, line, message):
    path = write("a.jsonl", '{"text": "fine", "label": "a"}\n' + line + "\n")
    told = failure(path)
    assert f"{path}:2: " in told
    assert message in told


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "a", "label": "b"},\n {"text": ]', ":2: not JSON"),
        ('"text"', "an array or an object of objects is expected"),
        ('[{"text": "a", "label": "b"}] x', "more text after the end"),
        ("[{}]", ":1: cannot tell which key holds the text. No columns are seen"),
        ('[{"text": "a", "label": "b"} 3]', "a comma or ] is expected"),
        ('{"a": {"text": "a", "label": "b"}, 3}', '"name": is expected'),
        ("[]", "holds no example"),
        ("", "an array or an object"),
        ("[" * 100_000, "cannot be read"),
        ('{"train": [["a", "b"]], "dev": []}', "lists of different lengths: 'train' 1, 'dev' 0;"),
        ('{"data": [{"text": "a"}]}', "Columns seen: 0 'text'. Give label KEY"),
        ('[["a", "b"], ["c", "d"]]', "a.json: an array of arrays; expected an array of objects"),
        (b'[\n{"text": "\xff"}]', ":2: byte 0xff at column 11 is not utf-8"),
    ],
)
def test_bad_json_files(write, content, message):
    assert message in failure(write("a.json", content))


def test_wrong_bytes(write):
    path = write("a.csv", "text,label\nfine,x\ncaf\xe9 \xb3,y\n".encode("latin-1"))
    message = failure(path)
    assert f"{path}:3: byte 0xe9 at column 4 is not utf-8" in message
    # Here both read the same, and another line may have a sign that cp1252 alone has.
    assert "encoding='cp1252'" in message
    assert read(path, encoding="latin-1") == read(path, encoding="cp1252")
    assert read(path, encoding="latin-1")[1].text == "café ³"
    assert "not an encoding" in failure(path, encoding="latin-17")
    windows = write("b.csv", "text,label\nit’s ³,x\n".encode("cp1252"))
    assert "encoding='cp1252'" in failure(windows)
    assert read(windows, encoding="cp1252")[0].text == "it’s ³"
    # Byte 0x81 is nothing in cp1252.
    assert "encoding='latin-1'" in failure(write("c.csv", b"text,label\n\x81\x92,x\n"))


def test_a_header_that_lacks_a_name_is_passed_over(write):
    path = write("a.csv", "text,label\n0,fine,x\n1,bad,y\n")
    message = failure(path)
    assert message.count("give skip_rows=1 header=False") == 1
    found = read(path, text=1, label=2, header=False, skip_rows=1)
    assert [(one.text, one.label, one.row) for one in found] == [("fine", "x", 2), ("bad", "y", 3)]


def test_lines_before_the_header_are_passed_over(write):
    path = write("a.csv", 'Export of "May\n\ntext,label\n"a\nb",x\nc,d,e\n')
    assert ":6: 3 columns where the header has 2" in failure(path, skip_rows=2)
    good = write("b.tsv", "title\ntext\tlabel\na\tx\n")
    assert read(good, skip_rows=1) == [TextExample("a", None, "x", 3)]
    assert "holds no example" in failure(good, skip_rows=9)
    assert "has no meaning for" in failure(write("a.jsonl", "{}"), skip_rows=1)
    assert "not an encoding" in failure(path, encoding="rot13")


def test_a_wrong_byte_spoils_its_own_row_only(write):
    path = write("a.csv", b'text,label\n"one\ntw\xff o\n",x\nfine,y\n')
    stream = read_examples(path, need_label=True, skip_bad_rows=True)
    assert list(stream) == [TextExample("fine", None, "y", 5)]


def test_utf16(write):
    content = "text,label\r\ncafé \u2028,x\r\n中文,y\r\n"
    path = write("a.csv", content.encode("utf-16"))
    assert read(path) == read(path, encoding="utf-16")
    assert [e.text for e in read(path, encoding="utf-16")] == ["café \u2028", "中文"]
    assert "b.csv:4: this line or one soon after is not utf-16" in failure(
        write("b.csv", content.encode("utf-16") + b"\x00"), encoding="utf-16"
    )


def test_byte_order_mark(write):
    path = write("a.csv", "\ufefftext,label\n\ufeffa,x\n")
    assert read(path, text="text") == [TextExample("\ufeffa", None, "x", 2)]
    assert read(path, encoding="utf-8-sig")[0].label == "x"


def test_nul(write):
    assert ":2: a NUL byte" in failure(write("a.csv", "text,label\na\0,x\n"))
    assert ":2: a NUL byte" in failure(write("a.tsv", "text\tlabel\na\0\tx\n"))


def test_missing_empty_and_odd_files(write, tmp_path):
    assert "no such file" in failure(tmp_path / "none.csv")
    assert "it is a folder" in failure(tmp_path, format="csv")
    assert "it is a folder; name a file in it" in failure(tmp_path)
    write("train.csv", "text,label\na,b\n")
    write(".hidden.csv", "")
    assert "name a file in it, such as " in (message := failure(tmp_path))
    assert "train.csv" in message
    write("config.json", "{}")
    assert "it holds a model" in failure(tmp_path)
    assert "holds no example" in failure(write("a.csv", ""))
    assert "holds no example" in failure(write("b.csv", "text,label\n"))
    assert "does not tell the format" in failure(write("a.dat", "PK"))
    assert "save the sheet as CSV first" in failure(write("a.numbers", "PK"))
    assert "unpack it first" in failure(write("a.zip", "PK"))
    assert "save its text as" in failure(write("a.pdf", "%PDF"))
    assert "I like it: no such file; name one, or -" in failure("I like it")
    whole = gzip.compress(b"text,label\n" + b"a,b\n" * 9999)
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-20])
    assert "damaged or cut short" in failure(tmp_path / "cut.csv.gz")
    (tmp_path / "plain.csv.gz").write_bytes(b"text,label\na,b\n")
    assert "damaged or cut short" in failure(tmp_path / "plain.csv.gz")


def test_options_that_cannot_be(write):
    for fields, message in [
        ({"text": -1}, "its number from 0"),
        ({"delimiter": "::"}, "one character"),
        ({"delimiter": " "}, "format='label-text'"),
    ]:
        with pytest.raises(UsageError, match=message):
            ReadOptions(**fields)
    path = write("a.jsonl", '{"text": "a", "label": "b"}\n')
    assert "did you mean 'csv'?" in failure(path, format="cvs")
    assert "header has no meaning for format='jsonl'" in failure(path, header=True)
    assert "no column numbers" in failure(path, text=0)


def test_a_line_without_end_is_refused(write, monkeypatch):
    limit = Limit("one line", 100, "bytes")
    monkeypatch.setattr("tidybert.files.text_lines.LINE_BYTES", limit)
    with pytest.raises(LimitError, match=r":2: over 100 bytes; the limit for one line is 100; is"):
        read(write("a.csv", "text,label\n" + "a" * 200 + ",b\n"))


# Labels


def test_labels_have_one_spelling(write):
    values = ['"x "', "1", "1.0", "0.5", "true", "-0.0", "1e300", '"1.0"']
    lines = "".join(f'{{"text": "a", "label": {value}}}\n' for value in values)
    labels = [e.label for e in read(write("a.jsonl", lines))]
    assert labels == ["x", "1", "1", "0.5", "true", "0", "1e+300", "1.0"]


def test_label_names_are_in_numeric_order():
    def examples(*labels):
        return [TextExample("", None, label, 1) for label in labels]

    assert label_names(examples("10", "9", "b", "1", "a", "9", None)) == ["1", "9", "10", "a", "b"]
    assert label_names(examples("nan", "-1", "inf", "0.5", "1_0")) == [
        "-1",
        "0.5",
        "1_0",
        "inf",
        "nan",
    ]


@pytest.mark.parametrize("score", ["nan", "inf", "good", "1_0", "3,5", "1e999"])
def test_scores_must_be_finite_numbers(write, score):
    path = write("a.tsv", f"text\tlabel\na\t 4.5\nb\t{score}\n")
    assert f"{path}:3: the score {score!r} is not a finite number" in failure(path, scores=True)
    assert len(read(path)) == 2


def test_flags_of_options():
    options = ReadOptions(text=5, text_pair="b", quoting=False, header=True, delimiter="\t")
    assert " ".join(flags_of(options, ReadOptions)) == (
        "--text 5 --text-pair b --header --delimiter tab --no-quoting"
    )


@pytest.mark.parametrize("name", ["a.csv.gz", "a.tsv.gz", "a.jsonl.gz"])
def test_memory_does_not_grow_with_the_file(write, name):
    text = "word " * 400
    row = {
        "a.csv.gz": f'"{text}",x\n',
        "a.tsv.gz": f"{text}\tx\n",
        "a.jsonl.gz": json.dumps({"text": text, "label": "x"}) + "\n",
    }[name]
    head = {"a.csv.gz": "text,label\n", "a.tsv.gz": "text\tlabel\n", "a.jsonl.gz": ""}[name]
    path = write(name, head + row * 4_000)
    tracemalloc.start()
    count = sum(1 for _ in read_examples(path, need_label=True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4_000
    assert peak < 2_000_000


# Round trips

NASTY = st.text(
    st.one_of(
        st.sampled_from("\"',;\t\n\r\\|\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\ufeff \0"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=20,
).filter(lambda cell: cell != r"\N")
"""Cells; \\N is MySQL's null."""
ROWS = st.lists(st.tuples(NASTY, NASTY, st.sampled_from(["x", "y", "10"])), min_size=1, max_size=8)
QUICK = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def contents(path: Path, **fields: Any) -> list[tuple[str, str | None, str | None]]:
    examples = read(path, text="text", text_pair="text_pair", label="label", **fields)
    return [(e.text, e.text_pair, e.label) for e in examples]


@QUICK
@given(
    rows=ROWS,
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_csv_round_trip(tmp_path, rows, delimiter, end, quoting):
    # Before lines that end in \n, csv.writer leaves a lone \r unquoted, which is refused.
    drop = "\0" if quoting == csv.QUOTE_ALL or end == "\r\n" else "\0\r"
    rows = [
        tuple(cell.translate({ord(char): None for char in drop}) for cell in row) for row in rows
    ]
    path = tmp_path / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
        writer.writerows([("text", "text_pair", "label"), *rows])
    assert contents(path, delimiter=delimiter, quoting=True) == rows


@QUICK
@given(rows=ROWS)
def test_tsv_round_trip(tmp_path, rows):
    table = str.maketrans("", "", "\0\t\n")
    rows = [(a.translate(table), b.translate(table), c) for a, b, c in rows]
    path = tmp_path / "a.tsv"
    lines = ["\t".join(row) + "\n" for row in [("text", "text_pair", "label"), *rows]]
    path.write_bytes("".join(lines).encode("utf-8"))
    assert contents(path) == rows


@QUICK
@given(rows=ROWS, ascii_only=st.booleans())
def test_json_round_trip(tmp_path, rows, ascii_only):
    objects = [dict(zip(("text", "text_pair", "label"), row, strict=True)) for row in rows]
    lines = [json.dumps(value, ensure_ascii=ascii_only) for value in objects]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode("utf-8"))
    assert contents(tmp_path / "a.jsonl") == rows
    whole = json.dumps(objects, ensure_ascii=ascii_only, indent=1)
    (tmp_path / "a.json").write_bytes(whole.encode("utf-8"))
    assert contents(tmp_path / "a.json") == rows
    numbered = json.dumps(dict(enumerate(objects)), ensure_ascii=ascii_only)
    (tmp_path / "b.json").write_bytes(numbered.encode("utf-8"))
    assert contents(tmp_path / "b.json") == rows


@settings(QUICK, max_examples=30)
@given(rows=ROWS)
def test_parquet_round_trip(tmp_path, rows):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = dict(zip(("text", "text_pair", "label"), zip(*rows, strict=True), strict=True))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
    assert contents(path) == rows


@QUICK
@given(
    raw=st.binary(max_size=200),
    name=st.sampled_from(["csv", "tsv", "jsonl", "json", "txt", "parquet"]),
)
def test_any_bytes_are_read_or_refused(tmp_path, raw, name):
    path = tmp_path / f"a.{name}"
    path.write_bytes(raw)
    fields = {"text": 0, "header": False} if name in ("csv", "tsv") else {}
    try:
        examples = read(path, need_label=False, **fields)
    except (DataError, UsageError):
        return
    assert examples
    for example in examples:
        example.text.encode("utf-8")
