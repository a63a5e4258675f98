"""Classes by their names: cleaned names, an oracle in NumPy, files and streams, bad input."""

import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert import Embedder, zero_shot
from tidybert.cli.main import run as shell
from tidybert.errors import DataError, DataWarning, TidyBertError, UsageError
from tidybert.inference import zero_shot as subject
from tidybert.inference.zero_shot import NamePredictor, class_texts, cleaned, says_nothing

TEXTS = ["we saw a red hen", "the dog was old", "blue and white", "a cow near the cat"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("card_not_working", "card not working"),
        ("CardNotWorking", "Card Not Working"),
        ("iPhone", "iPhone"),
        ("non-fiction/novels", "non fiction novels"),
        (" C++ ", "C++"),
    ],
)
def test_a_name_becomes_words(name: str, words: str) -> None:
    assert cleaned(name) == words


@pytest.mark.parametrize("name", ["0", "1.5", "LABEL_3", "class 2", "?", "-"])
def test_a_number_says_nothing(name: str) -> None:
    assert says_nothing(name)


@pytest.mark.parametrize("name", ["5 stars", "2nd", "class", "x", "类"])
def test_a_word_says_something(name: str) -> None:
    assert not says_nothing(name)


def test_a_name_that_says_nothing_is_left_out_with_a_line(tiny_model: Path, caplog: Any) -> None:
    described = {"0": "a red cat"}

    assert class_texts(["0", "dog"], described) == {"0": ["a red cat"], "dog": ["dog"]}
    assert class_texts(["a_b", "A b", "c"]) == {"a_b": [], "A b": [], "c": ["c"]}
    zero_shot(TEXTS, ["0", "dog"], descriptions=described, model=tiny_model)
    assert caplog.messages == ["names that say nothing are left out: 0"]


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_scores_are_a_softmax_of_cosines_without_what_texts_share(tiny_model: Path) -> None:
    labels, descriptions = ["red_dog", "white"], {"white": "a blue hen"}

    answers = zero_shot(TEXTS, labels, descriptions=descriptions, model=tiny_model)

    embed = Embedder(tiny_model).embed
    anchors = np.stack(
        [unit(embed(["red dog"])[0]), unit(unit(embed(["white", "a blue hen"])).mean(0))]
    )
    vectors = unit(embed(TEXTS))
    cosines = unit(vectors - vectors.sum(0) / (len(TEXTS) + 20)) @ anchors.T
    expected = np.exp(cosines / subject.TEMPERATURE)
    expected /= expected.sum(1, keepdims=True)
    found = [list(each["scores"].values()) for each in answers]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert [each["label"] for each in answers] == [labels[at] for at in expected.argmax(1)]
    assert zero_shot(
        TEXTS, descriptions={"red dog": "a dog", "white": "a blue hen"}, model=tiny_model
    )


def test_the_embedded_model_knows_words() -> None:
    texts = ["The cable is broken and the router stays dark.", "You charged me twice this month."]

    answers = zero_shot(texts, ["billing", "hardware"])

    assert [each["label"] for each in answers] == ["hardware", "billing"]
    assert zero_shot(texts[0], ["billing", "hardware"])["label"] == "hardware"


def test_a_file_gives_the_same_answers_to_stdout_and_into_a_file(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    file, named, out = tmp_path / "texts.txt", tmp_path / "named.csv", tmp_path / "out.jsonl"
    file.write_text("\n".join(TEXTS) + "\n")
    named.write_text("label,text\nred_dog,an old dog\nwhite,a blue hen\n")
    command = ["predict", str(tiny_model), str(file), "--descriptions", str(named)]

    assert shell(command) == 0
    printed = capsys.readouterr().out
    assert shell([*command, "--labels", "red_dog,white", "--out", str(out)]) == 0

    descriptions = {"red_dog": "an old dog", "white": "a blue hen"}
    expected = zero_shot(TEXTS, descriptions=descriptions, model=tiny_model)
    for text in (printed, out.read_text()):
        for line, answer in zip(text.splitlines(), expected, strict=True):
            assert json.loads(line)["scores"] == pytest.approx(answer["scores"], abs=1e-5)


def test_of_a_large_file_texts_from_all_over_it_are_compared(
    tiny_model: Path, toy_examples: Callable[..., Any]
) -> None:
    predictor = NamePredictor(tiny_model, ["red", "dog"])

    predictor.compare_with(iter(toy_examples(1000)))

    assert predictor.sample is not None
    rows = [one.row for one in predictor.sample]
    assert len(rows) == subject.COMMON_TEXTS
    assert rows[0] == 1
    assert rows[-1] > 750


def test_a_line_of_a_stream_is_answered_by_itself(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    stream = io.BytesIO("\n".join([TEXTS[0], *TEXTS]).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(stream)))

    assert shell(["predict", str(tiny_model), "-", "--labels", " red, dog,"]) == 0

    first, second, *_ = capsys.readouterr().out.splitlines()
    assert json.loads(first)["scores"] == json.loads(second)["scores"]
    alone = zero_shot(TEXTS[0], ["red", "dog"], model=tiny_model)
    assert json.loads(first)["scores"] == pytest.approx(alone["scores"], abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "descriptions", "error", "message"),
    [
        (["card_lost", "Card lost"], None, DataError, "are both 'Card lost' in words"),
        (["red", "dog"], {"cat": "a cat"}, DataError, "describes 'cat', which is no label"),
        (["red", " "], None, UsageError, "labels has an empty name"),
        (["red"], None, UsageError, "labels has 1 label; two at least are needed"),
        (["red", "LABEL_1"], None, DataError, "nothing says what the label 'LABEL_1' means"),
        (["red", "dog " * 40], None, DataError, "has 42 tokens, and"),
        (["red", "dog"], {"red": "cat " * 31}, DataError, "'red' has 33 tokens, and"),
    ],
)
def test_bad_names_are_refused(
    tiny_model: Path, labels: list[str], descriptions: Any, error: type[TidyBertError], message: str
) -> None:
    with pytest.raises(error, match=message):
        zero_shot(TEXTS, labels, descriptions=descriptions, model=tiny_model)


def test_many_names_get_a_line(tiny_model: Path, caplog: Any) -> None:
    labels = [f"dog {chr(97 + at // 26)}{chr(97 + at % 26)}" for at in range(500)]

    with caplog.at_level(logging.WARNING):
        answers = zero_shot(TEXTS, labels, model=tiny_model)

    assert len(answers[0]["scores"]) == 500
    assert "500 labels: names alone were measured with 77 at most" in caplog.text


def test_a_label_that_is_described_twice_names_its_line(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    named = tmp_path / "named.csv"
    named.write_text("label,text\nred,a\ndog,b\nred,c\n")

    assert shell(["predict", str(tiny_model), "--input", "a", "--descriptions", str(named)]) == 1

    assert f"{named}:4: 'red' is described a second time" in capsys.readouterr().err


def test_a_pair_of_texts_has_no_names(tiny_model: Path) -> None:
    with pytest.raises(DataError, match="give only one text"):
        zero_shot([("a", "red")], ["red", "dog"], model=tiny_model)


def test_swapped_arguments_and_one_label_are_told(tiny_model: Path) -> None:
    with pytest.warns(DataWarning, match=r"are they swapped\? zero_shot\(texts, labels\)"):
        zero_shot(["hen", "old dog"], TEXTS, model=tiny_model)
    with pytest.raises(UsageError, match="labels is one text, 'hen': give a list of names"):
        zero_shot(TEXTS, "hen", model=tiny_model)
