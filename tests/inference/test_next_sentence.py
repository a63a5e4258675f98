"""Next sentence: transformers' probabilities, streams, and what is refused."""

from collections.abc import Callable
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.errors import DataError, UsageError, WeightsError
from tidybert.files.text_examples import TextExample
from tidybert.inference.pretraining_heads import NextSentencePredictor

Pretrained = Callable[[str], tuple[Path, Any]]
FIRST = ["we saw a red hen", "the dog", "old and new and blue", ""]
SECOND = ["a cow", "was near the old dog", "", "the"]


@pytest.fixture(scope="module")
def predictor(pretrained: Pretrained) -> NextSentencePredictor:
    return NextSentencePredictor(pretrained("BertForNextSentencePrediction")[0])


@pytest.mark.parametrize("name", ["BertForNextSentencePrediction", "BertForPreTraining"])
def test_the_probabilities_are_those_of_transformers(name: str, pretrained: Pretrained) -> None:
    import transformers

    directory, model = pretrained(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = tokenizer(FIRST, SECOND, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs)
    logits = output.logits if hasattr(output, "logits") else output.seq_relationship_logits
    # transformers' label 0, too, is that the second sentence follows.
    expected = logits.softmax(-1)[:, 0].tolist()

    answers = NextSentencePredictor(directory).predict(FIRST, SECOND)

    assert [each["follows"] for each in answers] == pytest.approx(expected, abs=1e-5)
    assert [each["num_tokens"] for each in answers] == inputs["attention_mask"].sum(1).tolist()
    assert len({round(each, 4) for each in expected}) == len(FIRST)


def test_a_long_pair_is_cut_and_that_is_said(pretrained: Pretrained) -> None:
    directory, _ = pretrained("BertForNextSentencePrediction")
    short = NextSentencePredictor(directory, max_seq_length=8)

    (answer,) = short.predict(["we saw the old red hen"], ["the dog"])

    (same,) = short.predict(["we saw the"], ["the dog"])
    assert (answer["num_tokens"], answer["truncated"]) == (11, True)
    assert (same["num_tokens"], same["truncated"]) == (8, False)
    assert answer["follows"] == pytest.approx(same["follows"], abs=1e-5)


def test_chunks_answer_as_a_list_does(predictor: NextSentencePredictor) -> None:
    examples = [
        TextExample(first, second, None, row)
        for row, (first, second) in enumerate(zip(FIRST, SECOND, strict=True), start=1)
    ]

    chunks = list(predictor.predict_chunks(examples * 8))
    streamed = [each["follows"] for _, answers in chunks for each in answers]

    listed = [each["follows"] for each in predictor.predict(FIRST, SECOND)]
    assert streamed == pytest.approx(listed * 8, abs=1e-5)
    assert [one for read, _ in chunks for one in read] == examples * 8
    endless = predictor.predict_chunks(repeat(examples[0]))
    assert [len(answers) for _, answers in islice(endless, 3)] == [1, 2, 4]
    assert list(predictor.predict_chunks([])) == predictor.predict([], []) == []


def test_what_is_no_pair_is_refused(predictor: NextSentencePredictor) -> None:
    with pytest.raises(DataError, match=r"single texts, .* with text_pair"):
        list(predictor.predict_chunks([TextExample("a", None, None, 1)]))
    with pytest.raises(DataError, match="given: 2 texts, 1 second text"):
        predictor.predict(["a", "b"], ["c"])
    with pytest.raises(DataError, match="one string"):
        predictor.predict("a", "b")


def test_settings_that_do_not_fit_are_refused(pretrained: Pretrained) -> None:
    directory, _ = pretrained("BertForNextSentencePrediction")
    with pytest.raises(UsageError, match="max_seq_length is 33"):
        NextSentencePredictor(directory, max_seq_length=33)
    with pytest.raises(UsageError, match="max_seq_length=4 leaves no room"):
        NextSentencePredictor(directory, max_seq_length=4).predict(["a"], ["b"])


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("BertModel", r"cls\.seq_relationship\.weight, cls\.seq_relationship\.bias"),
        ("BertForMaskedLM", r"bert\.pooler\.dense\.weight.*cls\.seq_relationship\.weight"),
    ],
)
def test_a_model_without_the_head_says_what_it_lacks(
    name: str, lacking: str, pretrained: Pretrained
) -> None:
    with pytest.raises(
        WeightsError, match=f"has no next-sentence head: its weights lack {lacking}.*pre-train one"
    ):
        NextSentencePredictor(pretrained(name)[0])
