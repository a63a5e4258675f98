"""What the page for labelling does: what it keeps, what it asks next, what it learned."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.data.labels_file import Answer, CorrectionsFile, LabelsFile
from tidybert.errors import DataError
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.page.label_probe import LabelProbe
from tidybert.page.labelling import Labelling, LabelSettings, Suspect
from tidybert.tasks.tags.tag_files import read_tagged, split_text

SUBJECTS = {"billing": "the invoice", "delivery": "the parcel", "login": "my password"}
SAYINGS = ("{} is wrong", "what about {}", "{} again", "I asked about {} twice", "help with {} now")
TEXTS = [
    f"{saying.format(subject)} {number}"
    for number in range(4)
    for saying in SAYINGS
    for subject in SUBJECTS.values()
]


def right(text: str) -> str:
    return next(name for name, subject in SUBJECTS.items() if subject in text)


def examples(texts: Any = TEXTS) -> list[TextExample]:
    return [
        TextExample(*(each if isinstance(each, tuple) else (each, None)), None, row)
        for row, each in enumerate(texts, 1)
    ]


@contextmanager
def labelling(path: Path, asked: Any = None, **settings: Any) -> Iterator[Labelling]:
    asked = examples() if asked is None else asked
    is_pair = asked[0].text_pair is not None
    several = settings.get("multi_label", False)
    how: Any = {"by": "", "is_pair": is_pair, "multi_label": several}
    how["of_entities"] = settings.get("of_entities", False)
    with LabelsFile.opened(path, **how) as file:
        chosen = {"file": "texts.txt", "out": str(path), "model": None, **settings}
        found = Labelling(asked, file, LabelSettings(**chosen))
        found.start()
        yield found
        found.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labels.csv"


def labels_in(path: Path, **details: Any) -> list[Any]:
    found = read_examples(path, None, need_label=True, **details)
    return [(one.text, one.label if one.labels is None else one.labels) for one in found]


def test_answers_are_in_the_file_and_a_new_start_goes_on(path: Path) -> None:
    with labelling(path, examples([*TEXTS, *TEXTS[:7]])) as page:
        assert page.view()["equal"] == 7
        said = []
        for _ in range(12):
            item = page.view()["item"]
            page.answer(item["number"], [right(item["texts"][0])])
            said.append((item["texts"][0], right(item["texts"][0])))
        skipped = page.view()["item"]["number"]
        page.answer(skipped, [], "skipped")
        page.answer(page.view()["item"]["number"], [], "none")

    assert labels_in(path) == said
    with labelling(path) as page:
        view = page.view()
        assert (view["labelled"], view["skipped"], view["none"]) == (12, 1, 1)
        assert view["left"] == len(TEXTS) - 14
        assert view["random"] == 2
        assert [each["name"] for each in view["classes"]][:1] == [said[0][1]]
        assert view["item"]["number"] != skipped


def test_back_takes_back_what_was_said_last_and_restores_what_it_replaced(path: Path) -> None:
    with labelling(path, classes=["a", "b"]) as page:
        first = page.view()["item"]["number"]
        page.answer(first, ["a"])
        page.show(first)
        assert page.view()["item"]["labels"] == ("a",)
        page.answer(first, ["b"])
        page.back()
        assert labels_in(path) == [(TEXTS[first], "a")]
        page.back()
        assert page.view()["item"]["number"] == first
        with pytest.raises(DataError, match="no answer"):
            page.back()
        with pytest.raises(DataError):
            labels_in(path)
    with labelling(path) as page:
        assert page.view()["labelled"] == 0


def test_near_texts_are_labelled_at_once_and_taken_back_at_once(path: Path) -> None:
    with labelling(path) as page:
        page.answer(4, ["x"], also=[5, 6, 4])
        assert len(labels_in(path)) == 3
        page.back()
        assert page.view()["labelled"] == 0


@pytest.mark.parametrize(
    ("labels", "status", "said"),
    [
        ([], "labelled", "choose one"),
        (["x", "y"], "labelled", "choose one"),
        ([" "], "labelled", "needs a name"),
        (["x"], "perhaps", "status"),
    ],
)
def test_what_no_answer_is_is_refused_and_not_kept(
    labels: list[str], status: str, said: str, path: Path
) -> None:
    with labelling(path) as page:
        before = path.read_bytes()
        with pytest.raises(DataError, match=said):
            page.answer(0, labels, status)
        for number in (-1, len(TEXTS)):
            with pytest.raises(DataError, match="no text"):
                page.answer(number, ["x"])
        assert path.read_bytes() == before


def test_what_a_spreadsheet_changes_meanwhile_counts(path: Path) -> None:
    with labelling(path, classes=["billing"]) as page:
        first = page.view()["item"]["number"]
        page.answer(first, ["billing"])
        path.write_text(path.read_text(encoding="utf-8").replace(",billing,", ",refund,"))
        page.answer(page.view()["item"]["number"], ["billing"])
        view = page.view()
        assert [each["key"] for each in view["classes"]] == ["1", "2"]
        assert "was read again" in view["said"]
        assert {each["name"]: each["count"] for each in view["classes"]} == {
            "billing": 1,
            "refund": 1,
        }


def test_the_probe_learns_believes_and_is_measured_on_random_texts(path: Path) -> None:
    described = {"login": "passwords and accounts"}
    with labelling(
        path, model="tidybert-small", classes=list(SUBJECTS), descriptions=described
    ) as page:

        def learned(count: int) -> dict[str, Any]:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                view = page.view()
                if not view["encoding"] and view["learned"] == count and view["item"]["beliefs"]:
                    return view
                time.sleep(0.02)
            raise AssertionError(f"nothing learned: {page.view()}")

        while page.view()["encoding"]:
            time.sleep(0.02)
        for _ in range(40):
            item = page.view()["item"]
            page.answer(item["number"], [right(item["texts"][0])])
        view = learned(40)
        item = view["item"]
        best = max(zip(item["beliefs"], SUBJECTS, strict=True))[1]
        assert best == right(item["texts"][0])
        assert sum(item["beliefs"]) == pytest.approx(1, abs=1e-4)
        assert view["accuracy"]["count"] == view["random"] == 8
        assert view["accuracy"]["low"] > 0.4
        assert right(item["near"][0]["texts"][0]) == right(item["texts"][0])
        # A wrong label is found.
        wrong = next(iter(page._answers))
        text = page.examples[wrong].text
        page.answer(wrong, [next(name for name in SUBJECTS if name != right(text))])
        learned(40)
        assert page.errors()[0]["text"] == text
        assert page.errors()[0]["believed"] == right(text)


def test_the_first_label_takes_no_text_of_a_class_that_its_name_alone_tells() -> None:
    subjects = "invoice parcel password printer holiday train cat guitar doctor garden pizza river"
    classes = subjects.split()
    probe = LabelProbe(
        examples([f"what about the {each}" for each in classes]),
        "tidybert-small", {}, multi_label=False, opening={},
    )  # fmt: skip
    probe.encode(lambda _done: None)

    learned = probe.learn([(0, ("invoice",))], set(), classes)

    assert learned is not None
    assert min(learned.doubts.diagonal()) > 0.8


def test_a_model_of_few_positions_reads_as_much_as_it_can(tiny_model: Path) -> None:
    probe = LabelProbe(examples(), str(tiny_model), {}, multi_label=False, opening={})

    probe.encode(lambda _done: None)

    assert len(probe.vectors) == len(TEXTS)


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, 1), (1.0, 10)])
def test_a_probe_that_is_slow_to_learn_waits_for_ten_answers(
    path: Path, seconds: float, expected: int
) -> None:
    with labelling(path) as page:  # without a MODEL no thread learns
        page._seconds = seconds
        answers = 0
        while not page._wanted.is_set():
            page.answer(page.view()["item"]["number"], ["x"])
            answers += 1
    assert answers == expected


def test_a_text_may_have_several_labels_or_none_of_them(path: Path) -> None:
    pairs = examples([(text, "or so") for text in TEXTS[:6]])
    with labelling(path, pairs, multi_label=True, classes=["a"]) as page:
        page.answer(0, ["a", "b"])
        page.answer(1, [], "none")
        with pytest.raises(DataError, match="comma"):
            page.answer(2, ["a,b"])
        assert page.view()["classes"][1]["name"] == "b"
    found = labels_in(path, multi_label=True)
    assert found == [(TEXTS[0], ("a", "b")), (TEXTS[1], ())]


def test_all_texts_are_drawn_at_random_also_once_a_probe_learns(path: Path) -> None:
    with labelling(path, model="tidybert-small", at_random=True) as page:
        while page.view()["encoding"]:
            time.sleep(0.02)
        for _ in range(20):
            item = page.view()["item"]
            assert (item["drawn"], item["near"]) == ("random", [])
            page.answer(item["number"], [right(item["texts"][0])])
        while page.view()["learned"] < 20:
            time.sleep(0.02)
        assert {one.drawn for one in page._queue} == {"random"}


def test_a_model_that_cannot_be_opened_leaves_texts_at_random(path: Path, tmp_path: Path) -> None:
    with labelling(path, model=str(tmp_path / "absent")) as page:
        while page.view()["encoding"]:
            time.sleep(0.02)
        number = page.view()["item"]["number"]
        page.answer(number, ["x"])
        assert labels_in(path) == [(TEXTS[number], "x")]


def test_suspects_are_asked_in_their_order_and_corrected(tmp_path: Path) -> None:
    path = tmp_path / "corrections.csv"
    path.write_text(
        "row,label,suggested,correction,text,why\n2,no,yes,,fine,p 0.1\n3,no,yes,,fine,p 0.2\n"
    )
    with CorrectionsFile.opened(path) as file:
        given = [TextExample("fine", None, None, 2), TextExample("fine", None, None, 3)]
        suspects = [Suspect("no", "yes", "p 0.1"), Suspect("no", "yes", "p 0.2")]
        settings = LabelSettings(
            file="a.csv", out=str(path), model=None, classes=["no", "yes"], suspects=suspects
        )
        page = Labelling(given, file, settings)
        page.start()
        assert page.view()["item"]["suspect"]["suggested"] == "yes"
        page.answer(0, ["yes"])
        with pytest.raises(DataError, match="no example has the label"):
            page.answer(1, ["maybe"])
        page.answer(1, ["no"])
        assert page.view()["item"] is None
        page.back()
        assert page.view()["item"]["number"] == 1
    assert path.read_text().splitlines()[1:] == ["2,no,yes,yes,fine,p 0.1", "3,no,yes,,fine,p 0.2"]


MARKED = "🙂 Zoë moved\nto New York."
"""Words: 🙂, Zoë, moved, to, New, York and the full stop."""


def tagged_in(path: Path) -> list[Any]:
    return [(one.words, one.tags) for one in read_tagged(path, None, need_label=True)]


def test_marked_words_are_what_finetune_tag_reads(path: Path) -> None:
    with labelling(path, examples([MARKED, "nobody", "=SUM", "?"]), of_entities=True) as page:
        page.answer(0, [], marks=[(4, 5, "LOC"), (1, 1, "per")])
        page.answer(1, [])
        page.answer(2, [], marks=[(1, 1, "PER")])
        page.answer(3, [], "skipped")
        page.back()
        assert [each["name"] for each in page.view()["classes"]] == ["per", "LOC"]
    words = ("🙂", "Zoë", "moved", "to", "New", "York", ".")
    said = [
        (words, ("O", "B-per", "O", "O", "B-LOC", "I-LOC", "O")),
        (("nobody",), ("O",)), (("=", "SUM"), ("O", "B-per")),
    ]  # fmt: skip
    assert tagged_in(path) == said

    with (
        pytest.raises(DataError, match="is a list of entities; name the task tag"),
        labelling(path),
    ):
        pass
    # A person marks one text otherwise, and the last row counts; then takes that back.
    with labelling(path, examples([MARKED, "nobody"]), of_entities=True) as page:
        page.show(0)
        item = page.view()["item"]
        assert "".join(before + word for before, word in item["words"]) + item["after"] == MARKED
        assert item["entities"] == [[1, 1, "per"], [4, 5, "LOC"]]
        page.answer(0, [], marks=[(5, 5, "LOC")])
        assert tagged_in(path)[-1] == (words, ("O",) * 5 + ("B-LOC", "O"))
        page.back()
        assert tagged_in(path)[-1] == said[0]
        before = path.read_bytes()
        for marks in ([(0, 1, "x"), (1, 2, "y")], [(6, 7, "x")], [(2, 1, "x")], [(-1, 0, "x")]):
            with pytest.raises(DataError, match="in another entity, or not among"):
                page.answer(0, [], marks=marks)
        with pytest.raises(DataError, match="needs a name"):
            page.answer(0, [], marks=[(0, 0, " ")])
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("PER", ":2: the label 'PER' is not a list of entities as JSON"),
        ('"[{""start"": 0, ""end"": 9, ""label"": ""PER""}]"', ":2: 0 to 9 is not a part"),
        ("[1]", ":2: the number 1 where"),
    ],
)
def test_a_cell_that_is_no_list_of_entities_is_named(cell: str, said: str, path: Path) -> None:
    path.write_text(f"text,label,label_status,drawn,row,by,at\nZoë,{cell},labelled,random,1,,\n")
    with pytest.raises(DataError, match=said), labelling(path, of_entities=True):
        pass


@given(st.text(max_size=40), st.data())
def test_marks_of_any_text_come_back_as_they_were(text: str, data: st.DataObject) -> None:
    words, spans = split_text(text)
    edges = sorted(data.draw(st.sets(st.integers(0, len(words)), max_size=6)))
    marks = [(start, end - 1, "T") for start, end in pairwise(edges)]
    page = Labelling.__new__(Labelling)
    page.classes, page.settings = (
        ["T"],
        LabelSettings(file="", out="", model=None, of_entities=True),
    )
    entities = page._entities(text, marks)
    assert [one.text for one in entities] == [
        text[spans[first][0] : spans[last][1]] for first, last, _ in marks
    ]
    answer = Answer((text,), ("T",) * len(marks), "labelled", "random", "1", entities)
    shown = page._words(text, answer)
    assert shown["entities"] == [list(each) for each in marks]
    assert "".join(map("".join, shown["words"])) + shown["after"] == text
