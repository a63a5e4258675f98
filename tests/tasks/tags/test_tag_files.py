"""Readers of tagged sentences: CoNLL, JSON with words, JSON with spans, text; bad input by line."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tidybert.errors import DataError, UsageError, in_python
from tidybert.files.reading import Reading, ReadOptions, ReadReport
from tidybert.metrics.entity_scores import entities
from tidybert.tasks.tags.tag_files import TaggedExample, read_tagged

CONLL = """-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O
German JJ B-MISC

Peter NNP B-PER
Blackburn NNP I-PER
"""
SENTENCES = [
    (("EU", "rejects", "German"), ("B-ORG", "O", "B-MISC"), 3),
    (("Peter", "Blackburn"), ("B-PER", "I-PER"), 7),
]
NO_TAG = "is none of entities, which other tags are: O, or B- or I- and a type, is expected"
NAMES = "write the tags' names, or put the dataset_info.json of datasets beside the file"
NO_BYTE = (
    "byte 0xff at column 3 is not utf-8; save the file as UTF-8, or give its encoding, as in "
    "encoding='cp1252'"
)


def read(
    path: Path | str,
    *,
    need_label: bool = True,
    skip_bad_rows: bool = False,
    report: ReadReport | None = None,
    **fields: Any,
) -> list[TaggedExample]:
    return list(
        read_tagged(
            path,
            ReadOptions(**fields),
            need_label=need_label,
            skip_bad_rows=skip_bad_rows,
            report=report,
        )
    )


def failure(path: Path | str, *, need_label: bool = True, **fields: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        read(path, need_label=need_label, **fields)
    return str(caught.value)


def plain(examples: list[TaggedExample]) -> list[tuple[Any, ...]]:
    return [(one.words, one.tags, one.row) for one in examples]


# CoNLL columns


@pytest.mark.parametrize("name", ["a.conll", "a.txt", "a.txt.gz", "a.iob2", "a.BIO"])
def test_columns_by_suffix(write: Any, name: str) -> None:
    report = ReadReport()

    assert plain(read(write(name, CONLL), report=report)) == SENTENCES
    assert report.format == "conll"
    assert report.num_examples == 2
    assert report.notes == ["1 line of -DOCSTART- passed over", "tags of entities in IOB2"]
    assert "read as conll, text 0, label 2" in in_python(report.lines()[0])


def test_columns_by_number_tabs_and_windows_line_ends(write: Any) -> None:
    path = write("a.data", "1\tB-x\tParis\t_\r\n2\tO\tis\t_\r\n\r\n \t\r\n1\tO\tbig\t_")

    examples = read(path, format="conll", text="2", label=1)

    assert plain(examples) == [(("Paris", "is"), ("B-x", "O"), 1), (("big",), ("O",), 5)]


def test_only_spaces_and_tabs_are_between_columns(write: Any) -> None:
    examples = read(write("a.conll", "\u00a0 O\n\u3000\tO\n\u2028 O\n"))

    assert examples[0].words == ("\u00a0", "\u3000", "\u2028")


def test_tags_are_not_looked_at_to_predict(write: Any) -> None:
    words = write("a.conll", "EU\nrejects\n\nPeter\n")
    tagged = write("b.conll", "EU x\nrejects ?\n\nPeter -\n")

    for path in (words, tagged):
        assert plain(read(path, need_label=False)) == [
            (("EU", "rejects"), None, 1),
            (("Peter",), None, 4),
        ]


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("a I-x\nb B-x\n", "tags of entities in IOB1, read as IOB2"),
        ("a S-x\nb S-x\n", "tags of entities in IOBES, read as IOB2"),
        ("a U-x\nb U-x\n", "tags of entities in BILOU, read as IOB2"),
    ],
)
def test_any_scheme_is_read_as_iob2_and_told(write: Any, content: str, note: str) -> None:
    report = ReadReport()

    (example,) = read(write("a.conll", content), report=report)

    assert example.tags == ("B-x", "B-x")
    assert report.notes == [note]


def test_odd_tags_are_read_as_conlleval_does_and_counted(write: Any) -> None:
    report = ReadReport()
    content = "a B-x\nb I-x\n\nc O\nd I-x\n\ne B-x\nf I-y\n\ng B-x\n"

    examples = read(write("a.conll", content), report=report)

    assert [one.tags for one in examples][1:3] == [("O", "B-x"), ("B-x", "B-y")]
    assert "2 sentences in which IOB2 would write other tags (the first on line 4)" in in_python(
        report.notes[-1]
    )


def test_classes_of_words(write: Any) -> None:
    report = ReadReport()

    (example,) = read(write("a.conll", "dogs NNS\nbark VBP\n"), report=report)

    assert example.tags == ("NNS", "VBP")
    assert "classes of words, and no entities are scored" in report.notes[0]


def test_a_model_knows_what_tags_mark(write: Any) -> None:
    path, report = write("a.conll", "我 S\n北 B\n京 E\n"), ReadReport()

    (guessed,) = read_tagged(path, need_label=True)
    (example,) = read_tagged(path, need_label=True, report=report, of_entities=False)

    assert guessed.tags == ("B-_", "B-_", "I-_")
    assert example.tags == ("S", "B", "E")
    assert report.notes == ["tags are classes of words, as in training, and no entities are scored"]
    path = write("b.conll", "dogs NNS\nbark O\n")
    with pytest.raises(DataError, match=r"'NNS' of the word 'dogs' .* which those in training"):
        list(read_tagged(path, need_label=True, of_entities=True))


def test_bad_sentences_are_told_by_their_lines(write: Any) -> None:
    content = b"a x O\nb O\nc x\n\nd x PER\n\ne x B-x\n\nf \xff O\ng x I-x\nh x ?\n\ni x O\nj x x\n"
    path = write("a.conll", content)

    message = failure(path)

    assert message.splitlines() == [
        f"{path}: 4 rows cannot be read:",
        f"  {path}:2: 2 columns where line 1 has 3 (and 1 more line of this sentence)",
        f"  {path}:5: the tag 'PER' of the word 'd' {NO_TAG}",
        f"  {path}:9: {NO_BYTE}",
        f"  {path}:14: the tag 'x' of the word 'j' {NO_TAG}",
        "Fix the file, or leave bad rows out with skip_bad_rows=True",
    ]
    report = ReadReport()
    assert plain(read(path, skip_bad_rows=True, report=report)) == [(("e",), ("B-x",), 7)]
    assert report.num_problems == 4
    assert "4 rows skipped" in "\n".join(report.lines())


def test_another_encoding(write: Any) -> None:
    (example,) = read(write("a.conll", "Köln B-LOC\n".encode("latin-1")), encoding="latin-1")

    assert example.words == ("Köln",)


@pytest.mark.parametrize(
    ("name", "content", "fields", "message"),
    [
        ("a.conll", "", {}, "it holds no example; is it the right file?"),
        ("a.conll", "-DOCSTART- O\n\n\n", {}, "it holds no example"),
        ("a.conll", "word\n", {}, ":1: one column where a word and its tag are expected"),
        ("a.conll", "a b O\n", {"label": 3}, "label 3: line 1 has 3 columns, and the first is 0"),
        ("a.conll", "a b O\n", {"label": "tag"}, "label tag: CoNLL columns have no names"),
        ("a.conll", "a b O\n", {"text": 2}, "text and label must name different columns"),
        ("a.conll", "a O\n", {"delimiter": "tab"}, "delimiter has no meaning for format='conll'"),
        ("a.conll", "a O\n", {"text_pair": 1}, "text_pair has no meaning for format='conll'"),
        ("a.csv", "a,O\nb,O\n", {}, ":2: cannot tell which key holds the words or the text"),
        ("a.csv", "a,O\n", {"format": "swag"}, "format='swag': tagged sentences are read from con"),
        ("a.txt", "a\n", {"format": "text"}, "plain text has no tags; give format='conll'"),
    ],
)
def test_what_cannot_be_read(
    write: Any, name: str, content: str, fields: dict[str, Any], message: str
) -> None:
    assert message in failure(write(name, content), **fields)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert "no such file" in failure(tmp_path / "a.conll")
    assert "it is a folder" in failure(tmp_path)


# JSON with words


@pytest.mark.parametrize(
    ("words", "tags"), [("tokens", "ner_tags"), ("words", "tags"), ("tokens", "labels")]
)
def test_words_with_tags(write: Any, words: str, tags: str) -> None:
    record = {"id": 1, words: ["New York", "wins"], tags: ["S-LOC", "O"]}
    for name, content in (("a.jsonl", [record]), ("a.json", json.dumps([record]))):
        report = ReadReport()
        examples = read(write(name, content), report=report)
        assert plain(examples) == [(("New York", "wins"), ("B-LOC", "O"), 1)]
        assert report.columns == {"text": words, "label": tags}
        assert report.guessed == ["text", "label"]


def test_keys_that_are_given(write: Any) -> None:
    path = write("a.jsonl", [{"w": ["a"], "tags": ["x"], "pos": ["NN"], "tokens": ["b"]}])

    assert plain(read(path, text="w", label="pos")) == [(("a",), ("NN",), 1)]
    assert "no key 'ner' among 'w', 'tags', 'pos', 'tokens'" in failure(path, label="ner")


def test_bad_objects_are_told_by_their_lines(write: Any) -> None:
    path = write(
        "a.jsonl",
        [
            {"tokens": ["a"], "tags": ["O"]},
            {"tokens": ["a", "b"], "tags": ["O"]},
            {"tokens": ["a"], "tags": [0]},
            {"tokens": ["a"], "tags": "O"},
            {"tokens": [1], "tags": ["O"]},
            {"tokens": [], "tags": []},
            {"tokens": None, "tags": []},
            {"tokens": ["a"], "tags": [""]},
            {"tokens": ["a"], "tags": ["B-x"]},
            {"tokens": ["a"], "tags": ["Y"]},
            {"tokens": ["\ud800"], "tags": ["O"]},
        ],
    )
    report = ReadReport()

    assert len(read(path, skip_bad_rows=True, report=report)) == 2
    assert [(each.row, each.message) for each in report.problems] == [
        (2, "2 words and 1 tag"),
        (3, f"'tags[0]' is the number 0 where a text is expected; {NAMES}"),
        (4, "a text where a list with a tag for each word is expected"),
        (5, "'tokens[0]' is the number 1 where a text is expected"),
        (6, "it has no word, so nothing to learn or to measure"),
        (7, "'tokens' is null where a text or a list of words is expected"),
        (8, "the tag of word 0 is empty (the first word is 0)"),
        (10, f"the tag 'Y' of the word 'a' {NO_TAG}"),
        (11, "'tokens[0]' holds a lone surrogate (half of a \\ud83d\\ude00 pair)"),
    ]


def test_words_to_predict(write: Any) -> None:
    path = write("a.jsonl", [{"tokens": ["a", "b"], "tags": 5}, {"tokens": []}])

    assert plain(read(path, need_label=False)) == [(("a", "b"), None, 1), ((), None, 2)]


# JSON with spans


def test_a_text_with_spans(write: Any) -> None:
    text = "Zoë's flat (New York), U.S."
    spans = [
        {"start": 12, "end": 20, "label": "LOC"},
        {"start": 0, "end": 3, "type": "PER", "id": 7},
        {"start": 23, "end": 27, "label": "LOC"},
    ]
    for key in ("entities", "spans"):
        report = ReadReport()
        (example,) = read(write("a.jsonl", [{"text": text, key: spans}]), report=report)
        assert example.tags is not None
        assert example.spans is not None
        found = [
            (each.type, text[example.spans[each.start][0] : example.spans[each.end - 1][1]])
            for each in entities(example.tags)
        ]
        assert found == [("PER", "Zoë"), ("LOC", "New York"), ("LOC", "U.S.")]
        assert example.text == text
        assert report.columns == {"text": "text", "label": key}
        assert report.notes == []


def test_a_text_without_entities(write: Any) -> None:
    (example,) = read(write("a.jsonl", [{"text": "none here", "entities": []}]))

    assert example.tags == ("O", "O")


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 2)], "the entity 'Pa' (0 to 2) ends within the word 'Paris' (0 to 5)"),
        ([(2, 5)], "the entity 'ris' (2 to 5) begins within the word 'Paris' (0 to 5)"),
        ([(0, 6)], "the entity 'Paris ' (0 to 6) begins or ends at white space"),
        ([(0, 8), (6, 8)], "the entity 'is' (6 to 8) overlaps the one before"),
        ([(0, 40)], "entity 0: 0 to 40 is not a part of a text of 12 characters"),
        ([(5, 5)], "entity 0: 5 to 5 is not a part"),
        ([(-5, 5)], "entity 0: -5 to 5 is not a part"),
        ([("0", 5)], "entity 0: start is '0'; a whole number is needed"),
        ([(True, 5)], "entity 0: start is True; a whole number is needed"),
    ],
)
def test_spans_that_cannot_be(write: Any, spans: list[tuple[Any, Any]], message: str) -> None:
    marks = [{"start": start, "end": end, "label": "x"} for start, end in spans]
    path = write("a.jsonl", [{"text": "Paris is big", "entities": marks}])

    assert f"{path}:1: {message}" in failure(path)


def test_more_spans_that_cannot_be(write: Any) -> None:
    for marks, message in (
        (None, "null where a list of entities is expected"),
        ([[0, "x"]], 'entity 0: a list where {"start": …, "end": …, "label": …} or [start, end, '),
        ([{"start": 0, "end": 5}], "entity 0: missing key 'label'"),
        ([{"start": 0, "end": 5, "label": " "}], "entity 0: its label is empty"),
        ([{"start": 0, "end": 5, "label": "\ud83d"}], "entity 0: 'label' holds a lone surrogate"),
    ):
        assert message in failure(write("a.jsonl", [{"text": "Paris", "spans": marks}]))
    broken = write("a.jsonl", [{"text": "\udc00", "spans": []}])
    assert "'text' holds a lone surrogate" in failure(broken)


def test_objects_without_a_known_key_say_which_to_give(write: Any) -> None:
    path = write("a.jsonl", [{"content": "a", "entities": []}])

    assert ":1: cannot tell which key holds the words or the text" in failure(path)
    assert read(path, text="content")[0].tags == ("O",)
    path = write("a.jsonl", [{"text": "a", "tags": ["O"]}])
    assert "cannot tell which key holds the tags or the entities" in failure(path)
    assert "Give label KEY" in failure(path)
    assert read(path, need_label=False)[0].words == ("a",)


# Plain text


def test_each_line_is_a_text_to_predict(write: Any) -> None:
    path = write("a.txt", "Zoë's here.\n\n 北京\r\n")

    examples = read(path, need_label=False)

    assert [one.text for one in examples] == ["Zoë's here.", "", " 北京"]
    assert [one.words for one in examples][::2] == [("Zoë", "'", "s", "here", "."), ("北", "京")]
    assert [one.row for one in examples] == [1, 2, 3]


def test_columns_are_no_plain_text(write: Any) -> None:
    path = write("a.txt", CONLL)

    assert ":1: -DOCSTART- belongs in CoNLL files" in failure(path, need_label=False)
    assert len(read(path, need_label=False, format="conll")) == 2
    lines = write("b.conll", "A sentence of five words\nand one of four\n")
    assert "for a raw text a line give format='text'" in failure(lines, need_label=False)


@pytest.mark.parametrize(
    ("content", "need_label", "words"),
    [
        ("a b\n", False, [("a", "b")]),
        ("a O\nb O\n", True, [("a", "b")]),
        ('{"tokens": ["a", "b"]}\n', False, [("a", "b")]),
    ],
)
def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, content: str, need_label: bool, words: list[Any]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    report = ReadReport()

    assert [one.words for one in read("-", need_label=need_label, report=report)] == words
    assert "judged by the first byte" in report.notes[0]


def test_to_predict_is_a_stream(write: Any) -> None:
    """An answer must not wait for the end of the file."""
    path = write("a.conll", "a O\n\nb O O\n")

    stream = read_tagged(path, need_label=False)

    assert next(stream).words == ("a",)
    with pytest.raises(DataError, match=":3: 3 columns where line 1 has 2"):
        next(stream)


# Published files


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "sentences", "counts"),
    [
        ("train", 14041, {"LOC": 7140, "PER": 6600, "ORG": 6321, "MISC": 3438}),
        ("dev", 3250, {"PER": 1842, "LOC": 1837, "ORG": 1341, "MISC": 922}),
        ("test", 3453, {"LOC": 1668, "ORG": 1661, "PER": 1617, "MISC": 702}),
    ],
)
def test_conll_2003(real_data: Path, name: str, sentences: int, counts: dict[str, int]) -> None:
    report = ReadReport()

    examples = read(real_data / "ner" / "conll2003" / f"{name}.txt", report=report)

    assert len(examples) == sentences
    assert Counter(each.type for one in examples for each in entities(one.tags or ())) == counts
    assert report.notes[1:] == ["tags of entities in IOB2"]
    assert report.num_problems == 0


@pytest.mark.real_data
def test_wikigold(real_data: Path) -> None:
    report = ReadReport()

    examples = read(real_data / "ner" / "wikigold" / "wikigold.conll.txt", report=report)

    assert len(examples) == 1696
    assert sum(len(one.words) for one in examples) == 39152 - 145
    assert "tags of entities in IOB1, read as IOB2" in report.notes


def test_columns_are_those_of_training_where_the_file_has_them(write: Any) -> None:
    report, options = ReadReport(), ReadOptions(label=1)
    path = write("a.conll", "a DT O\nb NN O\n")
    trained = list(read_tagged(path, options, need_label=True, report=report))
    reading = Reading.of(options, report)

    assert list(read_tagged(path, need_label=True, like=reading)) == trained
    assert trained[0].tags == ("DT", "NN")
    # A bare column of words is read, and a raw text is none of a file in columns.
    (bare,) = read_tagged(write("b.conll", "a\nb\n"), need_label=False, like=reading)
    (raw,) = read_tagged(write("c.txt", "a b\n"), need_label=False, like=reading)
    assert (bare.words, raw.words) == (("a", "b"), ("a", "b"))
