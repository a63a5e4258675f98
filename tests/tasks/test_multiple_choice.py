"""choose: sequences, loss, metrics and answers, beside transformers' BertForMultipleChoice."""

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.fixed_outputs import dicts_of, make_features

from tidybert.cli import main as shell
from tidybert.configuration import BertConfig
from tidybert.data.batching import collate
from tidybert.data.checks import TrainingData
from tidybert.data.features import Features
from tidybert.errors import DataError, UsageError, in_python
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import Problem
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.inference.predictor import Predictor
from tidybert.tasks.multiple_choice import (
    ChoiceExample,
    MultipleChoice,
    choice_example,
    read_choices,
    segment_logsumexp,
)
from tidybert.tokenization import BertTokenizer

SWAG = """,video-id,fold-ind,startphrase,sent1,sent2,gold-source,\
ending0,ending1,ending2,ending3,label
0,x,1,"She opens. She","She opens, the ""box"".",She,gold,looks in.,closes it.,sings.,"runs, far.",0
1,x,2,"He sits. He",He sits.,He,gen,stands up.,eats.,drinks.,waits.,3
"""
CODAH = 'o\tA dog "runs". It\tbarks.\tmeows.\tflies.\treads.\t0\nq\t2 + 2 = ?\t2\t1\t4\t3\t2\n'


def read(
    path: Path, *, need_label: bool = True, report: ReadReport | None = None, **fields: Any
) -> list[ChoiceExample]:
    return list(read_choices(path, ReadOptions(**fields), need_label=need_label, report=report))


def failure(path: Path, *, need_label: bool = True, **fields: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        read(path, need_label=need_label, **fields)
    return str(caught.value)


def json_lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize("name", ["swag.csv", "train.csv.gz"])
def test_swag(write: Any, name: str) -> None:
    report = ReadReport()

    first, second = read(write(name, SWAG), report=report)

    assert first == ChoiceExample(
        'She opens, the "box".',
        "She",
        ("looks in.", "closes it.", "sings.", "runs, far."),
        0,
        2,
    )
    assert first.continued()[3] == "She runs, far."
    assert (second.label, second.row) == (3, 3)
    assert (report.format, report.header) == ("swag", True)
    assert [*map(in_python, report.notes)] == ["read as format='swag', judged by the first line"]


def test_swag_without_answers_and_with_another_number_of_endings(write: Any) -> None:
    path = write("test.csv", "sent1,sent2,ending0,ending1\na,b,c,d\n")

    assert read(path, need_label=False) == [ChoiceExample("a", "b", ("c", "d"), None, 2)]
    assert "no column is named any of label, answer, answerKey. Columns seen: 0 'se" in failure(
        path
    )


def test_codah(write: Any) -> None:
    report = ReadReport()

    first, second = read(write("codah.tsv", CODAH), report=report)

    choices = ("barks.", "meows.", "flies.", "reads.")
    assert first == ChoiceExample('A dog "runs". It', "", choices, 0, 1)
    assert first.continued() == list(choices)
    # The answer is a number, though it is the text of a choice too.
    assert second.label == 2
    assert report.format == "codah"
    bare = write("bare.tsv", "o\tprompt\ta\tb\tc\td\n")
    assert read(bare, need_label=False)[0].label is None
    assert ":1: 6 columns where 7 are expected (category, prompt, 4 endings" in failure(bare)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"context": "c", "choices": ["a", "b", "d"], "label": 2}, ("c", "", 2)),
        ({"prompt": "c", "endings": ["a", "b"], "answer": "b"}, ("c", "", 1)),
        ({"question": "q", "choices": ["a", "b"], "answer": 1.0, "id": 7}, ("q", "", 1)),
        ({"sent1": "c", "sent2": "s", "endings": ["1", "0"], "label": "0"}, ("c", "s", 1)),
        ({"context": "c", "start": "s", "choices": ["a", "b"], "label": 0}, ("c", "s", 0)),
        ({"context": "c", "question": "q?", "choices": ["a", "b"], "label": 0}, ("c", "q?", 0)),
    ],
)
def test_json_lines(write: Any, record: dict[str, Any], expected: tuple[str, str, int]) -> None:
    report = ReadReport()

    (one,) = read(write("a.jsonl", "\n" + json_lines(record)), report=report)

    assert (one.context, one.start, one.label) == expected
    assert one.choices == tuple(record.get("choices", record.get("endings")))
    assert one.row == 2
    assert "1 blank line passed over" in report.notes


STEM = {"stem": "q", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}]}


@pytest.mark.parametrize(
    "record",
    [
        {"ctx_a": "o", "ctx": "q", "endings": ["a", "b"], "label": "1"},
        {"id": "7", "question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]},
         "answerKey": "2"},
        {"question": STEM, "answerKey": "B"},
        {"question": "q", "options": {"A": "a", "B": "b"}, "answer": "b", "answer_idx": "B"},
        {"question": "q", "options": ["a", "b"], "answer": "B"},
        {"prompt": "q", "A": "a", "B": "b", "answer": "B"},
    ],
    ids=["HellaSwag", "ARC", "CommonsenseQA", "MedQA", "RACE", "letters"],
)  # fmt: skip
def test_published_sets(write: Any, record: dict[str, Any]) -> None:
    (one,) = read(write("a.jsonl", json_lines(record)))

    assert (one.context, one.start, one.choices, one.label) == ("q", "", ("a", "b"), 1)


def test_a_table_with_a_column_a_letter(write: Any) -> None:
    """As of Kaggle's LLM Science Exam; a choice that is a letter is meant by its text."""
    path = write("a.csv", 'id,prompt,"A",B,C,answer\n0,q,a,b,c,B\n1,q,B,b,A,A\n')

    assert [(one.choices, one.label) for one in read(path)] == [
        (("a", "b", "c"), 1), (("B", "b", "A"), 2)
    ]  # fmt: skip


def test_the_number_of_choices_may_differ(write: Any) -> None:
    path = write(
        "a.jsonl",
        json_lines(
            {"context": "c", "choices": ["a", "b"], "label": 1},
            {"context": "d", "choices": list("vwxyz"), "label": 4},
        ),
    )

    assert [len(one.choices) for one in read(path)] == [2, 5]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"choices": ["a", "b"], "label": 0}, "none of the keys context, prompt, sent1, "),
        (
            {"context": "c", "label": 0},
            "none of the keys choices, endings, options among 'context', 'label'",
        ),
        ({"context": "c", "choices": ["a", "b"]}, "none of the keys label, answer"),
        ({"context": "c", "choices": ["a"], "label": 0}, "1 choice; two at least are needed"),
        ({"context": "c", "choices": [], "label": 0}, "0 choices; two at least"),
        ({"context": "c", "choices": "ab", "label": 0}, "'choices' is a text where a list"),
        ({"context": "c", "choices": ["a", " "], "label": 0}, "choice 1 (the first is 0) is empty"),
        ({"context": "c", "choices": ["a", 3], "label": 0}, "'choice 1' is the number 3 where"),
        ({"context": None, "choices": ["a", "b"], "label": 0}, "'context' is null where a text"),
        ({"context": "\ud83d", "choices": ["a", "b"], "label": 0}, "'context' holds a lone surro"),
        (
            {"context": "c", "choices": ["a", "b"], "label": 2},
            "is 2; the choices are numbered from",
        ),
        ({"context": "c", "choices": ["a", "b"], "label": -1}, "is -1; the choices are numbered"),
        ({"context": "c", "choices": ["a", "b"], "label": 0.5}, "is the number 0.5; give the num"),
        ({"context": "c", "choices": ["a", "b"], "label": True}, "the answer is a boolean"),
        ({"context": "c", "choices": ["a", "b"], "label": None}, "the answer is missing"),
        (
            {"context": "c", "choices": ["a", "7"], "label": "1"},
            "the answer is '1'; give the number",
        ),
        ({"context": "c", "choices": ["a", "a"], "label": "a"}, "the text of several choices"),
        (
            {"context": "c", "choices": ["a", "b"], "endings": ["a", "b"], "label": 0},
            "both 'choices' and 'endings'",
        ),
        (
            {"context": "c", "prompt": "d", "choices": ["a", "b"], "label": 0},
            "both 'context' and 'prompt'",
        ),
        (
            {"context": "c", "question": "q", "start": "s", "choices": ["a", "b"], "label": 0},
            "both 'context' and 'question'",
        ),
        ([1], "a list where an object is expected"),
    ],
)
def test_bad_json_lines(write: Any, record: Any, message: str) -> None:
    good = {"context": "c", "choices": ["a", "b"], "label": 0}
    path = write("a.jsonl", json_lines(good, record))

    told = failure(path)

    assert f"{path}: 1 row cannot be read:\n  {path}:2: " in told
    assert message in told


def test_bad_rows_are_counted_and_can_be_skipped(write: Any) -> None:
    lines = ["o\tp\ta\tb\tc\td\t4", "o\tp\ta\t\tc\td\t1", "o\tp\ta\tb\tc\td\tx", "o\tp\ta\t1"]
    lines += ["o\tp\ta\tb\tc\td\t", "short", "o\tp\ta\tb\tc\td\t3"]
    path = write("a.tsv", CODAH + "\n".join(lines))
    told = failure(path)
    assert f"{path}: 6 rows cannot be read:" in told
    assert f"{path}:3: the answer is 4; the choices are numbered from 0 to 3" in told
    assert f"{path}:4: choice 1 (the first is 0) is empty" in told
    assert f"{path}:5: the answer is 'x'; give the number of a choice" in told
    assert f"{path}:6: 4 columns where 7 are expected" in told
    assert f"{path}:7: the answer is missing" in told
    assert "and 1 more" in told

    report = ReadReport()
    examples = list(read_choices(path, need_label=True, skip_bad_rows=True, report=report))
    assert [one.row for one in examples] == [1, 2, 9]
    assert (report.num_examples, report.num_problems) == (3, 6)


def test_bad_swag_rows(write: Any) -> None:
    path = write("a.csv", SWAG + 'only,two\n2,x,2,s,a,b,g,c,d,e,f,4\n3,x,2,s,a,b,g,c,"d,e,f,4\n')
    told = failure(path)
    assert f"{path}:4: 2 columns where the header has 12" in told
    assert f"{path}:5: the answer is 4;" in told
    assert f"{path}:6: line 6 cannot be parsed: a quote is never closed" in told
    assert "columns 0 and 1, counted from 0, have one name" in failure(
        write("b.csv", "sent1,sent1,sent2,ending0,ending1,label\na,b,c,d,e,0\n")
    )
    assert "no column is named any of context, prompt, sent1, ctx, article, question" in failure(
        write("c.csv", "sent2,ending0,ending1,label\na,d,e,0\n")
    )
    assert ":2: 1 choice; two at least" in failure(
        write("d.csv", "sent1,sent2,ending0,label\na,b,c,0\n")
    )


def test_wrong_json_and_wrong_bytes(write: Any) -> None:
    good = json_lines({"context": "é", "choices": ["a", "b"], "label": 0})
    assert ":2: not JSON: " in failure(write("a.jsonl", good + "{oops\n"))

    mixed = CODAH.encode() + "o\tcafé³\ta\tb\tc\td\t1\n".encode("latin-1")
    path = write("a.tsv", mixed)
    assert f"{path}:3: byte 0xe9 at column 6 is not utf-8; save the file as UTF-8" in failure(path)
    assert read(path, encoding="latin-1")[2].context == "café³"
    assert read(write("b.csv", SWAG.encode("utf-16")), encoding="utf-16")[0].label == 0
    assert read(write("c.csv", "\ufeff" + SWAG))[0].label == 0


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file(write: Any, content: str) -> None:
    assert "holds no example" in failure(write("a.tsv", content))
    assert "holds no example" in failure(write("a.tsv", content), format="jsonl")


def test_a_file_that_is_none_of_these(write: Any, tmp_path: Path) -> None:
    path = write("a.txt", "plain words\n")
    assert "give format, one of swag, codah, jsonl" in failure(path)
    assert "no such file" in failure(tmp_path / "absent.csv")
    assert "format='csv': choices are read from swag" in failure(path, format="csv")
    swag = write("a.csv", SWAG)
    assert "text has no meaning for format='swag'" in failure(swag, text="sent1")
    assert "header has no meaning for format='swag'" in failure(swag, header=True)
    lines = write("a.jsonl", json_lines({"context": "c", "choices": ["a", "b"], "label": 0}))
    assert "quoting has no meaning for format='jsonl'" in failure(lines, quoting=True)


def test_the_delimiter_and_the_quotes_can_be_others(write: Any) -> None:
    path = write("a.txt", SWAG.replace(",", ";").replace("runs; far", "runs, far"))
    assert read(path, delimiter="semicolon")[0].choices[3] == "runs, far."

    quoted = write("b.tsv", 'o\t"a\tprompt"\ta\tb\tc\td\t1\n')
    assert read(quoted, quoting=True)[0].context == "a\tprompt"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CODAH.encode())))

    assert [one.label for one in read_choices("-", need_label=True)] == [0, 2]


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(texts, texts, st.lists(texts, min_size=2, max_size=6), st.data())
def test_what_is_written_as_json_or_csv_is_read_again(
    tmp_path_factory: pytest.TempPathFactory,
    context: str,
    start: str,
    choices: list[str],
    data: st.DataObject,
) -> None:
    label = data.draw(st.integers(0, len(choices) - 1))
    folder = tmp_path_factory.mktemp("choices")
    expected = ChoiceExample(context, start, tuple(choices), label, 1)
    record = {"context": context, "start": start, "choices": choices, "label": label}
    (folder / "a.jsonl").write_text(json_lines(record), encoding="utf-8")
    assert read(folder / "a.jsonl") == [expected]

    assert choice_example(1, context, start, choices, label, need_label=True) == expected
    assert isinstance(
        choice_example(1, context, start, choices, len(choices), need_label=True), Problem
    )

    # A NUL and a lone carriage return are refused in delimited text, as in every reader.
    if any(char in text for text in (context, start, *choices) for char in "\0\r"):
        return
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["sent1", "sent2", *(f"ending{n}" for n in range(len(choices))), "label"])
        writer.writerow([context, start, *choices, label])
    (one,) = read(folder / "a.csv")
    assert (one.context, one.start, one.choices, one.label) == (
        context,
        start,
        tuple(choices),
        label,
    )


@pytest.mark.real_data
@pytest.mark.parametrize(("part", "count"), [("train", 1_665), ("dev", 556), ("test", 555)])
def test_codah_is_read_as_published(real_data: Path, part: str, count: int) -> None:
    report = ReadReport()

    examples = read(real_data / f"choice/codah/{part}.tsv", report=report)

    assert len(examples) == report.num_examples == count
    assert report.num_problems == 0
    assert {one.label for one in examples} == {0, 1, 2, 3}
    assert all(len(one.choices) == 4 for one in examples)


ANIMALS = ("cat", "dog", "cow", "hen")
COLOURS = ("red", "green", "blue", "white")


def example(
    context: str, choices: list[str], label: int | None = 0, start: str = "", row: int = 1
) -> ChoiceExample:
    return ChoiceExample(context, start, tuple(choices), label, row)


def toy_choices(count: int, seed: int, num_choices: tuple[int, int] = (2, 5)) -> list[Any]:
    """The right choice is the animal among the colours."""
    random = np.random.default_rng(seed)
    examples = []
    for row in range(1, count + 1):
        size = int(random.integers(*num_choices))
        choices = [str(each) for each in random.choice(COLOURS, size)]
        label = int(random.integers(size))
        choices[label] = str(random.choice(ANIMALS))
        examples.append(example("we saw the", choices, label, start="a", row=row))
    return examples


def rows_of(*outputs: list[float]) -> list[npt.NDArray[np.float32]]:
    return [np.array(each, dtype=np.float32) for each in outputs]


def labelled_features(examples: list[ChoiceExample]) -> list[Features]:
    """Features of two tokens a choice."""
    features = [
        Features(
            np.full(2 * len(one.choices), 2, dtype=np.int32),
            np.zeros(2 * len(one.choices), dtype=np.uint8),
            2,
            lengths=(2,) * len(one.choices),
            example=number,
        )
        for number, one in enumerate(examples)
    ]
    MultipleChoice().add_labels(features, examples)
    return features


def test_each_choice_is_a_sequence_after_the_context(tiny_model: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    examples = [
        example("the cat", ["was red", "is old and new"], start="we"),
        example("a", ["b", "dog", ""], row=2),
    ]

    first, second = MultipleChoice().features(examples, tokenizer, 9)

    whole = [tokenizer.encode("the cat", f"we {choice}", 9) for choice in examples[0].choices]
    assert first.input_ids.tolist() == whole[0].input_ids + whole[1].input_ids
    assert first.token_type_ids.tolist() == whole[0].token_type_ids + whole[1].token_type_ids
    assert first.lengths == (8, 9)
    assert (first.num_tokens, first.truncated) == (10, True)
    assert second.lengths == (5, 5, 4)
    assert (second.example, second.num_tokens, second.truncated) == (1, 5, False)


@pytest.mark.parametrize("counts", [(4, 4, 4), (2, 5, 3), (2,)])
def test_logits_and_loss_are_those_of_transformers(
    counts: tuple[int, ...],
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
    device: str,
) -> None:
    task = MultipleChoice()
    theirs = reference(tiny_config(), "BertForMultipleChoice")
    ours = copy_weights(theirs, task.build_model(tiny_config()))
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    examples = [
        one for seed, count in enumerate(counts) for one in toy_choices(1, seed, (count, count + 1))
    ]
    features = task.features(examples, tokenizer, 16)
    task.add_labels(features, examples)

    expected, losses = [], []
    for one in examples:
        pairs = [tokenizer.encode(one.context, choice) for choice in one.continued()]
        longest = max(map(len, pairs))
        padded = [
            [[*values, *[0] * (longest - len(values))] for values in column]
            for column in (
                [pair.input_ids for pair in pairs],
                [[1] * len(pair) for pair in pairs],
                [pair.token_type_ids for pair in pairs],
            )
        ]
        ids, mask, types = (torch.tensor(each)[None] for each in padded)
        with torch.no_grad():
            answer = theirs(
                input_ids=ids,
                attention_mask=mask,
                token_type_ids=types,
                labels=torch.tensor([one.label]),
            )
        expected.append(answer.logits[0])
        losses.append(answer.loss)

    outputs = run_features(task, ours, features, tokens_per_batch=30)
    assert [len(each) for each in outputs] == list(counts)
    for found, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(found), wanted, atol=1e-5, rtol=0)
    ours = ours.to(device)
    loss = task.loss(ours, collate(features).to(device)).cpu()
    torch.testing.assert_close(loss, torch.stack(losses).sum(), atol=1e-5, rtol=0)
    features[0].weight = 3.0
    weighted = task.loss(ours, collate(features).to(device)).cpu() - loss
    torch.testing.assert_close(weighted, 2 * losses[0], atol=1e-5, rtol=0)


@given(st.lists(st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=6), min_size=1))
def test_a_segments_logsumexp_is_torchs(rows: list[list[float]]) -> None:
    logits = torch.tensor([each for row in rows for each in row], requires_grad=True)
    whole = torch.cat([torch.tensor(row) for row in rows]).requires_grad_()

    found = segment_logsumexp(logits, [len(row) for row in rows])
    expected = torch.stack([each.logsumexp(0) for each in whole.split([len(row) for row in rows])])

    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad, whole.grad)


def test_an_answer_has_the_choice_its_text_and_every_probability() -> None:
    examples = [example("c", ["x", "y"]), example("c", ["p", "q", "r"])]
    outputs = rows_of([0, math.log(3)], [1e4, 0, 0])

    first, second = dicts_of(MultipleChoice().answers(outputs, make_features(2), examples))

    assert (first["choice"], first["text"]) == (1, "y")
    assert first["score"] == pytest.approx(0.75)
    assert first["scores"] == pytest.approx([0.25, 0.75])
    assert (second["text"], second["scores"]) == ("p", [1.0, 0.0, 0.0])


def test_metrics_judgements_and_selections_agree() -> None:
    examples = [
        example("one", ["x", "y"], 1, start="s", row=3),
        example("two", ["x", "y", "z"], 0, row=5),
        example("three", ["x", "y"], 0, row=6),
    ]
    features = labelled_features(examples)
    outputs = rows_of([0, math.log(3)], [0, 0, math.log(2)], [math.log(4), 0])
    task = MultipleChoice()

    metrics = task.answers(outputs, features, examples).metrics()

    assert metrics["accuracy"] == pytest.approx(2 / 3)
    losses = [-math.log(0.75), -math.log(0.25), -math.log(0.8)]
    assert metrics["log_loss"] == pytest.approx(sum(losses) / 3)
    assert set(metrics) == set(task.meanings)
    drawn = task.answers(outputs, features, examples).metrics(np.array([1, 1, 0]))
    assert drawn["accuracy"] == pytest.approx(1 / 3)
    assert drawn["log_loss"] == pytest.approx((2 * losses[1] + losses[0]) / 3)
    judged = [*task.answers(outputs, features, examples).judgements()]
    assert [(one.expected, one.predicted, one.correct) for one in judged] == [
        ("y", "y", 1.0),
        ("x", "z", 0.0),
        ("x", "x", 1.0),
    ]
    assert judged[0].text == "one\ns"
    assert judged[1].expected_probability == pytest.approx(0.25)
    assert (judged[1].confidence, judged[1].row) == (pytest.approx(0.5), 5)


def test_the_temperature_is_fitted_stored_and_used() -> None:
    random = np.random.default_rng(0)
    examples = [example("c", ["x", "y", "z"], int(random.integers(3))) for _ in range(200)]
    features = labelled_features(examples)
    # Right in two of three cases, and far too sure of it.
    outputs = rows_of(
        *(
            [
                20.0 if at == (one.label if n % 3 else (one.label + 1) % 3) else 0.0
                for at in range(3)
            ]
            for n, one in enumerate(examples)
        )
    )

    task = MultipleChoice().calibrated(MultipleChoice().answers(outputs, features, examples))

    assert task.temperature > 5
    assert task.settings() == {"temperature": task.temperature}
    before = MultipleChoice().answers(outputs, features, examples).metrics()
    after = task.answers(outputs, features, examples).metrics()
    assert after["accuracy"] == before["accuracy"]
    assert after["log_loss"] < before["log_loss"] / 2


def test_an_example_without_an_answer_is_named_with_its_line() -> None:
    examples = [example("c", ["x", "y"]), example("c", ["x", "y"], None, row=7)]

    with pytest.raises(DataError, match="line 7: the example has no answer"):
        labelled_features(examples)


def test_no_context_is_on_both_sides() -> None:
    examples = [example(f"passage {row // 3}", ["x", "y"], row=row) for row in range(60)]

    train, dev = MultipleChoice.hold_out(examples, 0.2, seed=1)

    assert len(train) + len(dev) == 60
    assert 9 <= len(dev) <= 15
    assert not {one.context for one in train} & {one.context for one in dev}


def test_a_context_that_all_have_holds_nothing_together() -> None:
    examples = [example("Which?", [f"x {row // 2}", "y"], row=row) for row in range(20)]

    train, dev = MultipleChoice.hold_out(examples, 0.2, seed=1)

    assert (len(train), len(dev)) == (16, 4)
    assert not {one.choices for one in train} & {one.choices for one in dev}


def test_the_data_are_checked() -> None:
    task = MultipleChoice()
    train = [
        example("one", ["x", "y"], 0, row=1),
        example("one", ["y", "x"], 1, row=2),
        example("one", ["x", "y"], 1, row=3),
        example("two", ["x", "x", "y"], 2, row=4),
        example(" ", ["x", "y"], 1, row=5),
    ]
    dev = [example("one", ["x", "y"], 0, row=1), example("new", ["x", "y", "z", "w"], 0, row=2)]

    report = task.check(
        TrainingData(train, dev, labelled_features(train), labelled_features(dev), 128)
    )

    assert report.facts == [
        "choices: 2 to 3 an example",
        "a guess is right in 37.5% of the dev examples",
    ]
    told = in_python("\n".join(report.warnings))
    assert "1 training example with equal choices (line 4)" in told
    assert "1 training example with an empty text (line 5)" in told
    assert "1 training example repeating an earlier one, question and answer (line 2)" in told
    assert "1 question with contradictory answers, in 3 training examples" in told
    assert "1 dev example of 2 with a question that a training example has too (line 1" in told
    assert not report.errors
    assert task.check(TrainingData([], None, [], [], 128)).errors == [
        "the training data hold no example"
    ]


def test_contexts_and_lists_of_choices_make_examples() -> None:
    (one,) = MultipleChoice.from_texts(["we saw"], [["a cat", "a dog"]])
    assert one == ChoiceExample("we saw", "", ("a cat", "a dog"), None, 1)
    with pytest.raises(DataError, match="give the choices of each as a second list"):
        MultipleChoice.from_texts(["we saw"], None)
    with pytest.raises(DataError, match="the choices of context 1 are one text"):
        MultipleChoice.from_texts(["we saw"], ["a cat"])
    with pytest.raises(DataError, match="context 2: 1 choice; two at least"):
        MultipleChoice.from_texts(["a", "b"], [["x", "y"], ["x"]])


@pytest.fixture(scope="module")
def tuned(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, toy_arguments: Callable[..., Any]
) -> tuple[Path, FinetunedModel]:
    """A RUN of the toy problem."""
    run = tmp_path_factory.mktemp("choices") / "run"
    finished = run_finetuning(
        FinetuningJob(
            MultipleChoice(),
            tiny_model,
            toy_choices(96, 0),
            toy_choices(40, 1),
            toy_arguments(),
            max_seq_length=16,
            out=run,
        )
    )
    return run, finished


def test_a_tiny_model_learns_to_choose(tuned: tuple[Path, FinetunedModel]) -> None:
    run, finished = tuned
    assert finished.result.metrics["accuracy"] > 0.9

    predictor = Predictor(run)
    one, two = predictor.predict(
        ["we saw the", "we saw the"], [["red", "hen"], ["dog", "a", "new"]]
    )
    assert (one["choice"], one["text"]) == (1, "hen")
    assert two["choice"] == 0
    assert (len(two["scores"]), two["num_tokens"], two["truncated"]) == (3, 7, False)
    found = predictor.evaluate(toy_choices(40, 1))
    assert {name: found[name] for name in finished.result.metrics} == pytest.approx(
        finished.result.metrics
    )


def test_transformers_opens_the_run_to_the_same_logits(tuned: tuple[Path, FinetunedModel]) -> None:
    import transformers

    run, _ = tuned
    theirs = transformers.AutoModelForMultipleChoice.from_pretrained(run).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    choices = ["a red", "a hen", "a new"]
    inputs = tokenizer(["we saw the"] * 3, choices, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**{key: value[None] for key, value in inputs.items()}).logits[0]

    predictor = Predictor(run)
    (answer,) = predictor.predict(["we saw the"], [choices])

    expected = (logits / predictor.task.temperature).softmax(0)
    assert answer["scores"] == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_model_that_transformers_saved_chooses_the_same(
    tmp_path: Path,
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
    reference: Callable[..., Any],
) -> None:
    theirs = reference(tiny_config(), "BertForMultipleChoice")
    theirs.save_pretrained(tmp_path)
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    tokenizer.save(tmp_path)
    choices = ["a red cat", "the dog", "hen"]
    with torch.no_grad():
        logits = [
            theirs(
                torch.tensor([[pair.input_ids]]),
                token_type_ids=torch.tensor([[pair.token_type_ids]]),
            ).logits[0, 0]
            for pair in (tokenizer.encode("we saw", choice) for choice in choices)
        ]

    (answer,) = Predictor(tmp_path).predict(["we saw"], [choices])

    assert answer["scores"] == pytest.approx(torch.stack(logits).softmax(0).tolist(), abs=1e-5)


def test_through_the_shell(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    path, run = tmp_path / "train.tsv", tmp_path / "run"
    rows = [("o", "we saw the", *one.choices, str(one.label)) for one in toy_choices(60, 0, (4, 5))]
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n")

    flags = ["--train", str(path), "--out", str(run), "--max-seq-length", "16", "--max-steps", "2"]
    flags += ["--dev-fraction", "0.1"]
    assert shell.run(["finetune", "choose", str(tiny_model), *flags, "--json"]) == 0
    captured = capsys.readouterr()
    assert set(json.loads(captured.out)) >= {"accuracy", "log_loss"}
    assert "read as --format codah, judged by the first line" in captured.err
    assert "choices: 4 an example" in captured.err

    assert shell.run(["evaluate", str(run), str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_examples"] == 60
    assert shell.run(["predict", str(run), str(path), "--format", "codah"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 60
    assert answers[0]["text"] in rows[0]

    assert shell.run(["finetune", "choose", str(tiny_model), *flags, "--long", "windows"]) == 2
    assert "--long has no meaning for choose" in capsys.readouterr().err
