"""Files of questions: SQuAD and JSON lines, answers at their places, each fault by its place."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import DataError, UsageError, in_python
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.tasks.questions.question_files import (
    QuestionExample,
    read_questions,
)

CONTEXT = "Rollo, a Norse leader, swore fealty to King Charles III. Rollo was a Norseman."


def squad(*questions: Any, context: Any = CONTEXT, **article: Any) -> dict[str, Any]:
    paragraphs = [{"qas": list(questions), "context": context}]
    return {"version": "1.1", "data": [{"paragraphs": paragraphs, "title": "Normans", **article}]}


def question(name: Any = "q1", text: Any = "Rollo", start: Any = 0, **more: Any) -> dict[str, Any]:
    answers = [{"text": text, "answer_start": start}]
    return {"id": name, "question": "Who swore?", "answers": answers, **more}


def read(path: Path | str, *, need_label: bool = True, **options: Any) -> list[QuestionExample]:
    return list(read_questions(path, ReadOptions(**options), need_label=need_label))


def failure(path: Path | str, *, need_label: bool = True, **options: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        read(path, need_label=need_label, **options)
    return str(caught.value)


# What is read


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_squad(write: Any, name: str) -> None:
    impossible = {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True}
    more = [{"text": "King Charles III", "answer_start": 39}, {"text": "Rollo", "answer_start": 57}]
    path = write(name, squad(question(answers=more, is_impossible=False), impossible))

    first, second = read(path)

    assert first == QuestionExample(
        id="q1",
        question="Who swore?",
        context=CONTEXT,
        answers=(("King Charles III", 39), ("Rollo", 57)),
        is_impossible=False,
        row=1,
        title="Normans",
    )
    assert (second.id, second.answers, second.is_impossible) == ("q2", (), True)


def test_the_row_is_the_line_of_the_question(write: Any) -> None:
    text = json.dumps(squad(question("a"), question("b")), indent=1)
    path = write("a.json", text)

    lines = text.splitlines()
    assert [lines[one.row - 1].strip() for one in read(path)] == ["{", "{"]
    assert [json.loads(lines[one.row].strip()[6:-1]) for one in read(path)] == ["a", "b"]


ANSWERS = [
    ({"answers": [{"text": "Rollo", "answer_start": 57}]}, (("Rollo", 57),)),
    ({"answers": {"text": ["Norse", "Rollo"], "answer_start": [9, 57]}},
     (("Norse", 9), ("Rollo", 57))),
    ({"answers": ["a Norse leader"]}, (("a Norse leader", 7),)),
    ({"answers": [{"text": "fealty"}]}, (("fealty", 29),)),
    ({"answer": "fealty"}, (("fealty", 29),)),
    ({"answer": "Rollo", "answer_start": 57}, (("Rollo", 57),)),
    ({"answer": "Rollo", "start": 57}, (("Rollo", 57),)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), ANSWERS)
def test_the_forms_of_answers(write: Any, given: dict[str, Any], expected: Any) -> None:
    (one,) = read(write("a.jsonl", [{"question": "Who?", "context": CONTEXT, **given}]))

    assert one.answers == expected
    assert (one.id, one.row, one.is_impossible) == ("1", 1, None)


@pytest.mark.parametrize(
    "cell",
    [
        "{'text': ['Norse', 'Rollo'], 'answer_start': [9, 57]}",
        '{"text": ["Norse", "Rollo"], "answer_start": [9, 57]}',
        "{'text': array(['Norse', 'Rollo'], dtype=object), 'answer_start': array([ 9, 57])}",
        "{'text': [np.str_('Norse'), np.str_('Rollo')], 'answer_start': [np.int64(9), 57]}",
        "[{'text': 'Norse', 'answer_start': 9}, {'text': 'Rollo', 'answer_start': 57}]",
    ],
)
def test_answers_in_cells(tmp_path: Path, cell: str) -> None:
    """As pandas writes a column of objects."""
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("context", "question", "answers"), (CONTEXT, "Who?", cell),
             (CONTEXT, "Why?", "{'text': array([], dtype=object), 'answer_start': []}")]
        )  # fmt: skip

    first, second = read(path)

    assert first.answers == (("Norse", 9), ("Rollo", 57))
    assert second.is_impossible


def test_the_columns_of_an_answer_and_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'context,question,answer_text,answer_start\n"{CONTEXT}",Who?,Rollo,57\n')

    assert read(path)[0].answers == (("Rollo", 57),)


@pytest.mark.parametrize(
    "given",
    [
        {"answers": []},
        {"answers": {"text": [], "answer_start": []}},
        {"answer": ""},
        {"answer": None},
        {"is_impossible": True},
        {"answers": [], "is_impossible": True},
    ],
)
def test_no_answer_says_that_there_is_none(write: Any, given: dict[str, Any]) -> None:
    (one,) = read(write("a.jsonl", [{"question": "Who?", "context": CONTEXT, **given}]))

    assert (one.answers, one.is_impossible) == ((), True)


def test_an_answer_without_a_place_that_occurs_twice_is_noted(write: Any) -> None:
    lines = [{"question": "Who?", "context": CONTEXT, "answer": "Rollo"}] * 7
    report = ReadReport()

    examples = list(read_questions(write("a.jsonl", lines), need_label=True, report=report))

    assert examples[0].answers == (("Rollo", 0),)
    (note,) = report.notes
    assert note.startswith("7 answers without answer_start that the context has more than once, ")
    assert in_python(note).endswith("of which the first is taken (line 1, 2, 3, 4, 5 and 2 more)")


def test_without_need_of_labels_answers_are_not_looked_at(write: Any) -> None:
    lines = [
        {"id": 7, "question": "Who?", "context": CONTEXT},
        {"question": "Who?", "context": CONTEXT, "answers": "wrong"},
    ]

    first, second = read(write("a.jsonl", lines), need_label=False)

    assert (first.id, second.id) == ("7", "2")
    assert first.answers == second.answers == ()


@pytest.mark.parametrize("options", [{}, {"format": "json"}])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    whole = squad(question()) if options else {"question": "Who swore?", "context": CONTEXT}
    stream = io.TextIOWrapper(io.BytesIO(json.dumps(whole).encode()))
    monkeypatch.setattr("sys.stdin", stream)

    (one,) = read("-", need_label=False, **options)

    assert (one.question, one.context) == ("Who swore?", CONTEXT)


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text(), st.booleans(), st.booleans())
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    answer: str,
    before: str,
    after: str,
    ascii_only: bool,
    lines: bool,
) -> None:
    context = before + answer + after
    path = tmp_path_factory.mktemp("questions") / ("a.jsonl" if lines else "a.json")
    one = question(text=answer, start=len(before))
    content = {**one, "context": context} if lines else squad(one, context=context)
    path.write_text(json.dumps(content, ensure_ascii=ascii_only), encoding="utf-8")

    (found,) = read(path)

    ((text, start),) = found.answers
    assert found.context == context
    assert found.context[start : start + len(text)] == text == answer


# What is wrong


PLACE = "article 1 ('Normans'), paragraph 1, question 1 (id 'q1')"
WRONG_QUESTIONS = [
    ({"answers": [{"text": "rollo", "answer_start": 0}]},
     "the answer 'rollo' is not in the context"),
    ({"answers": [{"text": "x" * 80}]}, f"the answer '{'x' * 59}…' is not in the context"),
    ({"answers": [{"text": " "}]}, "an answer is an empty text"),
    ({"answers": [{"text": 5}]}, "answers, item 1: text is 5; a string is needed"),
    ({"answers": [{"start": 5}]}, "answers, item 1: missing key 'text'"),
    ({"answers": [5]}, "answers: item 1 is 5; a string or a JSON object is needed"),
    ({"answers": [{"text": "Rollo", "answer_start": "0"}]}, "answers, item 1: answer_start is '0'"),
    ({"answers": [{"text": "Rollo", "answer_start": True}]},
     "answers, item 1: answer_start is True"),
    ({"answers": "Rollo"}, "answers is 'Rollo'; a JSON object or a list is needed"),
    ({"answers": {"text": ["Rollo"]}}, "answers: missing key 'answer_start'"),
    ({"answers": {"text": ["Rollo"], "answer_start": []}},
     "'answers' needs lists 'text' and 'answer_start' of one"),
    ({"is_impossible": True}, "'is_impossible' is true, but the question has the answer 'Rollo'"),
    ({"is_impossible": "no"}, "is_impossible is 'no'; true or false or null is needed"),
    ({"answers": [], "is_impossible": False},
     "the question has no answer, but 'is_impossible' is false"),
    ({"question": None}, "'question' is null where a text is expected"),
    ({"question": "\ud800"}, "'question' holds a lone surrogate"),
    ({"id": 1.5}, "'id' is the number 1.5 where a text is expected"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), WRONG_QUESTIONS)
def test_what_is_wrong_in_a_question(write: Any, given: dict[str, Any], message: str) -> None:
    told = failure(write("a.json", squad({**question(), **given})))
    place = PLACE if "id" not in given else PLACE.removesuffix(" (id 'q1')")
    assert "a.json: 1 row cannot be read:\n" in told
    assert f"a.json:1: {place}: {message}" in told
    lines = [{**question("q0"), "context": CONTEXT}, {**question(), "context": CONTEXT, **given}]
    assert f"a.jsonl:2: {message}" in failure(write("a.jsonl", lines))


def test_an_id_that_nobody_could_write_is_told(write: Any) -> None:
    lines = [{"id": one, "question": "Who?", "context": "Rollo"} for one in ("a", "\ud83d")]
    path = write("a.jsonl", lines)
    assert f"{path}:2: 'id' holds a lone surrogate" in failure(path, need_label=False)


@pytest.mark.parametrize("key", ["question", "id", "answers"])
def test_a_missing_key_is_named(write: Any, key: str) -> None:
    given = question()
    del given[key]

    told = failure(write("a.json", squad(given)))

    place = PLACE if key != "id" else PLACE.removesuffix(" (id 'q1')")
    assert f"a.json:1: {place}: no key '{key}'" in told
    if key == "question":
        assert "among 'id', 'answers', 'context'" in told


def test_a_line_without_context(write: Any) -> None:
    told = failure(write("a.jsonl", [{"question": "Who?", "text": "x"}]))

    assert "a.jsonl:1: no key 'context' among 'question', 'text'" in told


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": [5]}, "a.json:1: article 1: the number 5 where an object is expected"),
        ({"data": [{"title": "T"}]}, "a.json:1: article 1 ('T'): no list 'paragraphs'"),
        ({"data": [{"paragraphs": 5}]}, "a.json:1: article 1: no list 'paragraphs'"),
        ({"data": [{"paragraphs": [5]}]}, "a.json:1: article 1, paragraph 1: no list 'qas'"),
        (squad(context=5), "paragraph 1: 'context' is the number 5 where a text is expected"),
        (squad(5), "paragraph 1, question 1: the number 5 where an object is expected"),
        ({"data": 5}, "a.json:1: no list 'data', which in SQuAD holds articles with"),
        ("[]", "a.json:1: no list 'data'"),
        ("5", "a.json:1: not JSON: an array or an object"),
        ({"data": []}, "a.json: it holds no example; is it the right file?"),
        ('{"data": [{"paragraphs":\n[}', "a.json:2: not JSON: Expecting value at column 2; for"),
        ('{"question": "x"}\n{"question": "y"}', "a.json:2: not JSON: more text after the end"),
        (b'{"data":\n "\x81"}', "a.json:2: byte 0x81 at column 3 is not utf-8"),
        ("", "a.json:1: not JSON: an array or an object"),
    ],
)  # fmt: skip
def test_what_is_no_squad_file(write: Any, content: Any, message: str) -> None:
    assert message in failure(write("a.json", content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.jsonl: it holds no example"),
        ("\n\n", "a.jsonl: it holds no example"),
        ("{}\n{oops\n", "a.jsonl:2: not JSON"),
        ("5\n", "a.jsonl:1: the number 5 where an object is expected"),
        ([squad(question())], "a.jsonl:1: this line is a whole SQuAD file; give format"),
        (b'{"question": "\x81"}\n', "a.jsonl:1: byte 0x81 at column 15 is not utf-8"),
    ],
)
def test_what_is_no_file_of_lines(write: Any, content: Any, message: str) -> None:
    assert message in failure(write("a.jsonl", content))


def test_ids_are_not_given_twice(write: Any) -> None:
    told = failure(write("a.json", squad(question(), question("y"), question())))
    assert f"question 3 (id 'q1'): the id 'q1' is already that of {PLACE} (line 1)" in told
    lines = [{"question": "Who?", "context": "x", **id} for id in ({"id": "2"}, {})]
    told = failure(write("a.jsonl", lines), need_label=False)
    assert "a.jsonl:2: the id '2' is already that of line 1" in told


def test_an_array_in_one_line_may_have_no_ids(write: Any) -> None:
    one = {"question": "Who?", "context": "Rollo came", "answer": "Rollo"}
    found = list(read_questions(write("a.json", json.dumps([one] * 3)), need_label=True))
    assert [each.id for each in found] == ["1", "1 (2)", "1 (3)"]
    assert {(each.own_id, each.answers) for each in found} == {(None, (("Rollo", 0),))}


def test_all_problems_are_counted_and_can_be_skipped(write: Any) -> None:
    questions = [question(str(n), text=("Rollo", "Anna")[n % 2]) for n in range(20)]
    path = write("a.json", squad(*questions))

    told = failure(path)
    assert told.startswith(f"{path}: 10 rows cannot be read:\n")
    assert "  and 5 more\n" in told
    assert "skip_bad_rows" in told
    report = ReadReport()
    examples = list(read_questions(path, need_label=True, skip_bad_rows=True, report=report))
    assert [one.id for one in examples] == [str(n) for n in range(0, 20, 2)]
    assert f"{path}: 10 rows skipped: 10 × the answer … is not in the context" in report.lines()
    assert (report.num_examples, report.num_problems) == (10, 10)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.txt", {}, "the suffix '.txt' does not tell the format, and the first lines"),
        ("a.json", {"format": "conll"}, "format='conll': questions are read from json"),
        (
            "a.json",
            {"text": "q"},
            "text has no meaning for format='json'; is another format meant?",
        ),
        ("a.json", {"label_separator": ";"}, "label_separator has no meaning for format='json'"),
        ("none.json", {}, "none.json: cannot be read: no such file"),
        ("", {}, "it is a folder; name a file in it"),
    ],
)
def test_wrong_usage(
    write: Any, tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    write("a.txt", "words")
    write("a.json", squad(question()))

    assert message in failure(tmp_path / name, **options)


# Holding out


# Published files


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "count", "impossible", "first"),
    [
        ("squad/new_wiki_v1.0.json", 7_938, 0, "is there a delegate?"),
        ("squad/dev-v2.0-half.json", 6_078, 3_168, "In what country is Normandy located?"),
        ("zh/drcd/dev.json", 3_524, 0, "陆特和汉斯雷顿开创了哪一地区对梵语的学术研究？"),
    ],
)
def test_published_files(
    real_data: Path, name: str, count: int, impossible: int, first: str
) -> None:
    examples = read(real_data / name)

    assert len(examples) == count
    assert sum(one.is_impossible or False for one in examples) == impossible
    assert examples[0].question == first
    assert all(
        one.context.startswith(text, start) for one in examples for text, start in one.answers
    )
