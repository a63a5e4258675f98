"""Reading: how a file was read goes to JSON and back, and gives the next file its defaults."""

import json
from pathlib import Path

import pytest

from tidybert.errors import ConfigError, DataError, in_python, in_shell
from tidybert.files.reading import Reading, ReadOptions, ReadReport
from tidybert.files.rows import Problem
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples

TRAINED = "a title\nteam;words;more\nsales;gr\xfcn;x\nhelp;rot;y\n"


def write(path: Path, text: str, encoding: str = "latin-1") -> str:
    path.write_bytes(text.encode(encoding))
    return str(path)


@pytest.fixture
def trained(tmp_path: Path) -> Reading:
    """The reading of a file that needs four flags, after a journey through JSON."""
    options = ReadOptions(
        text="words", label="team", delimiter="semicolon", encoding="latin-1", skip_rows=1
    )
    report = ReadReport()
    path = write(tmp_path / "train.csv", TRAINED)
    assert len(list(read_examples(path, options, need_label=True, report=report))) == 2
    kept = json.loads(json.dumps(Reading.of(options, report).to_dict()))
    return Reading.from_dict(kept)


def read_like(
    trained: Reading, path: str, *, need_label: bool = True, **flags: object
) -> tuple[list[TextExample], str]:
    report = ReadReport()
    options = ReadOptions(**flags)  # type: ignore[arg-type]
    found = list(read_examples(path, options, need_label=need_label, report=report, like=trained))
    return found, report.lines(in_shell)[0]


def test_the_next_file_needs_no_flags(trained: Reading, tmp_path: Path) -> None:
    path = write(tmp_path / "next.csv", TRAINED)

    (first, _), line = read_like(trained, path)

    assert first == TextExample("gr\xfcn", None, "sales", 3)
    assert line.endswith("--text words, --label team (--text and --label as in training)")


def test_a_file_of_another_format_shares_the_columns_alone(
    trained: Reading, tmp_path: Path
) -> None:
    path = write(tmp_path / "next.jsonl", '{"words": "gr\xfcn", "team": "x"}\n', "utf-8")

    (only,), _ = read_like(trained, path)

    assert (only.text, only.label) == ("gr\xfcn", "x")


def test_a_flag_overrides(trained: Reading, tmp_path: Path) -> None:
    path = write(tmp_path / "next.csv", "one\ntwo\nwords,kind\n\u20ac,b\n", "utf-8")

    (only,), line = read_like(
        trained, path, label="kind", delimiter=",", encoding="utf-8", skip_rows=2
    )

    assert (only.text, only.label) == ("\u20ac", "b")
    assert "(--text as in training)" in line


def test_a_file_without_the_columns_of_training_is_guessed_from(
    trained: Reading, tmp_path: Path
) -> None:
    path = write(tmp_path / "next.csv", "-\ntext;n\nrot;1\n")

    (only,), line = read_like(trained, path, need_label=False)

    assert only.text == "rot"
    assert "(--text guessed from the names)" in line


def test_columns_by_number_need_a_file_without_names(tmp_path: Path) -> None:
    reading = Reading("tsv", {"text": "1", "label": "0"}, header=False)
    bare = write(tmp_path / "train", "sales\trot\n")
    named = write(tmp_path / "named.tsv", "label\ttext\nsales\trot\n")

    assert read_like(reading, bare)[0] == [TextExample("rot", None, "sales", 1)]
    with pytest.raises(DataError, match="say whether it names the columns"):
        read_like(reading, named)


def test_standard_input_keeps_its_own_form(
    trained: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = write(tmp_path / "lines.txt", "gr\xfcn\n", "utf-8")
    with Path(lines).open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        (only,), _ = read_like(trained, "-", need_label=False)

    assert only.text == "gr\xfcn"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"header": 1}, "header is 1; true or false"),
        ({"columns": {"texts": "a"}}, "unknown column 'texts'; did you mean 'text'?"),
        ({"columns": {"text": 3}}, "columns.text is 3"),
        ({"skip_rows": -1}, "skip_rows is -1"),
        ({"encoding": "klingon"}, "not an encoding"),
        ({"delimiter": "ab"}, "give one character"),
        ({"rows": 1}, "unknown key 'rows'"),
    ],
)
def test_a_damaged_reading_is_an_error(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Reading.from_dict({"format": "csv", **wrong})

    assert message in in_python(caught.value.message)


def test_several_columns_of_labels_are_found_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "rude": 1, "late": 0}\n')
    report = ReadReport()
    options = ReadOptions(label="rude,late")
    list(read_examples(path, options, need_label=True, report=report, multi_label=True))
    reading = Reading.of(options, report)

    (only,) = read_examples(path, need_label=True, multi_label=True, like=reading)

    assert only.labels == ("rude",)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("the label is empty", "the label is empty"),
        ("'text' is null where a text is expected", "'text' is null where a text is expected"),
        ("no key 'text' among 'a', 'b'; did you mean 'a'?", "no key 'text'"),
        ("not JSON: Expecting value at column 17", "not JSON"),
        ("byte 0xf6 at column 4 is not utf-8; save it", "byte N at column N is not utf-8"),
        ("lines 3-97 cannot be parsed: a quote is never closed; x", "a quote is never closed"),
        ("article 1 ('T'), question 3 (id 'it\\'s: 1'): the answer \"it's\" is not in it",
         "the answer … is not in it"),
        ("entity 0: 0 to 99 is not a part of a text of 1,021 characters",
         "N to N is not a part of a text of N characters"),
        ("/a b/c.ann:1: one start and one end are expected", "one start and one end are expected"),
        ("'tokens[7]' holds a lone surrogate (half of one)", "'tokens[N]' holds a lone surrogate"),
        (f"{'x' * 999}", "x" * 100),
    ],
)  # fmt: skip
def test_a_reason_is_a_message_without_what_differs(message: str, reason: str) -> None:
    assert Problem(1, message).reason() == reason


def test_reasons_are_bounded() -> None:
    report = ReadReport()
    for number in range(2000):
        report.leave_out(Problem(number, f"fault {chr(0x4E00 + number)}"))

    assert (report.num_problems, len(report.problems), len(report.reasons)) == (2000, 1000, 21)
    assert sum(report.reasons.values()) == 2000
    assert report.reasons["other reasons"] == 1980
    assert report.lines()[0].startswith(": 2,000 rows skipped: 1,980 × other reasons, 1 × fault")
