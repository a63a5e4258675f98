"""Predictor: answers in the order given, a stream as it comes, and what is refused."""

import json
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.checkpoints.example_kinds import TEXT
from tidybert.configuration import BertConfig
from tidybert.data.long_texts import LongTexts
from tidybert.errors import DataError, DataWarning, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel, save
from tidybert.inference.embedding import Embedder
from tidybert.inference.forward import run_features
from tidybert.inference.predictor import Predictor
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.task import AnyTask
from tidybert.tokenization import BertTokenizer
from tidybert.training.reports import TrainingResult

Examples = Callable[..., list[TextExample]]


@pytest.fixture(scope="module")
def predictor(tiny_run: Path) -> Predictor:
    return Predictor(tiny_run)


def test_it_answers_what_it_learned(predictor: Predictor) -> None:
    red, hen = predictor.predict(["the RED one", "we saw the old hen"])

    assert red["label"] == "colour"
    assert hen["label"] == "animal"
    assert red.keys() == {"label", "score", "scores", "num_tokens", "truncated"}
    assert red["score"] == red["scores"]["colour"] > 0.5
    assert sum(red["scores"].values()) == pytest.approx(1)
    assert (red["num_tokens"], red["truncated"]) == (5, False)


def test_a_pickle_of_an_older_version_answers(tiny_run: Path) -> None:
    """It has no count of unknown tokens."""
    for made, answer in (
        (Predictor(tiny_run), Predictor.predict),
        (Embedder(tiny_run), Embedder.embed),
    ):
        given = {**vars(pickle.loads(pickle.dumps(made)))}
        given.pop("unknown", None)
        again = type(made).__new__(type(made))
        vars(again).update(given)
        assert str(answer(again, ["a red cat"])) == str(answer(made, ["a red cat"]))


def test_scores_are_learned_too(tiny_score_run: Path, toy_examples: Examples) -> None:
    predictor = Predictor(tiny_score_run)

    answers = predictor.predict(["the old one", "red and white and blue"])

    assert answers[0].keys() == {"value", "num_tokens", "truncated"}
    assert answers[0]["value"] < answers[1]["value"]
    assert predictor.evaluate(toy_examples(50, seed=2, scores=True))["pearson"] > 0.5


def test_answers_come_in_the_order_of_the_texts(
    predictor: Predictor, toy_examples: Examples
) -> None:
    texts = [one.text for one in toy_examples(40, seed=5)]

    together = predictor.predict(texts)

    for text, answer in zip(texts, together, strict=True):
        (alone,) = predictor.predict([text])
        assert answer["label"] == alone["label"]
        assert answer["scores"] == pytest.approx(alone["scores"], abs=1e-5)
        assert answer["num_tokens"] == alone["num_tokens"]


# Of very different lengths; the longest are cut to max_seq_length, or read in windows.
TEXTS = ["red", "the old cow was near the dog", "", "we saw a red hen and a cat " * 5, "a new dog"]
SECONDS = ["is the hen white", "a", "and", "blue and old and green " * 4, ""]
CHOICES = [
    ["cat", "a hen"],
    ["dog", "the " * 9, "we"],
    ["a", "saw"],
    ["old", "red"],
    ["we", "is", "new", "and"],
]
CLASSES = ("a", "b", "c")
JOBS: dict[str, tuple[AnyTask, Any]] = {
    "classify": (Classification(CLASSES), None),
    "windows": (Classification(CLASSES, long_texts=LongTexts("windows", 5)), None),
    "pair": (Classification(CLASSES), SECONDS),
    "multi-label": (MultiLabelClassification(CLASSES), None),
    "regress": (Regression(), None),
    "entities": (Tagging(["O", "B-x", "I-x", "B-y", "I-y"], doc_stride=4), None),
    "tag": (Tagging(["DT", "NN", "VB"]), None),
    "choose": (MultipleChoice(), CHOICES),
    "answer": (QuestionAnswering(no_answers=True, doc_stride=4, max_query_length=6), SECONDS),
}


@pytest.mark.parametrize("job", JOBS)
def test_an_example_alone_is_answered_as_in_a_batch(
    job: str, tiny_model: Path, tiny_config: Callable[..., BertConfig], tmp_path: Path
) -> None:
    """Labels and places are the same, and scores to 1e-5."""
    task, seconds = JOBS[job]
    config = tiny_config(initializer_range=0.5)
    torch.manual_seed(2)
    save(
        FinetunedModel(
            task,
            task.build_model(config),
            BertTokenizer.from_pretrained(tiny_model),
            config,
            16,
            TrainingResult(0, 0, {}, 0.0, 0, 0),
        ),
        tmp_path,
    )
    predictor = Predictor(tmp_path, device="cpu")

    together = predictor.predict(TEXTS, seconds)

    for at, answer in enumerate(together):
        (alone,) = predictor.predict([TEXTS[at]], seconds and [seconds[at]])
        # Questions are numbered in the order given.
        assert_close({**answer, "id": None}, {**alone, "id": None})
    assert len({str(each) for each in together}) == len(TEXTS)


def assert_close(one: Any, other: Any) -> None:
    """Equal, but for floats, at any depth."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_close(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5, rel=0)
    else:
        assert one == other


@pytest.mark.parametrize("tokens_per_batch", [1, 20, 64, 10_000])
def test_the_size_of_batches_changes_nothing(
    tokens_per_batch: int, predictor: Predictor, toy_examples: Examples
) -> None:
    features = predictor.task.features(toy_examples(30), predictor.tokenizer, 16)
    expected = run_features(predictor.task, predictor.model, features)

    outputs = run_features(predictor.task, predictor.model, features, tokens_per_batch)

    assert {each.dtype for each in outputs} == {np.dtype(np.float32)}
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_a_stream_is_read_as_it_is_answered(predictor: Predictor) -> None:
    read = 0

    def endless() -> Iterator[TextExample]:
        nonlocal read
        while True:
            read += 1
            yield TextExample("a cow" if read % 3 else "red", None, None, read)

    answers = predictor.predict_stream(endless())
    assert read == 0
    next(answers)
    assert read == 1
    for answered, answer in enumerate(islice(answers, 4000), start=2):
        assert answer["label"] == ("animal" if answered % 3 else "colour")
        # A chunk is as large as all before it, and never larger than 1024.
        assert answered <= read < min(2 * answered, answered + 1024) + 1


def test_a_stream_answers_as_a_list_does(predictor: Predictor, toy_examples: Examples) -> None:
    examples = toy_examples(21, seed=3)

    streamed = list(predictor.predict_stream(iter(examples)))
    listed = predictor.predict([one.text for one in examples])

    for one, other in zip(streamed, listed, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-5)
    assert list(predictor.predict_stream([])) == predictor.predict([]) == []


def test_an_empty_text_is_answered(predictor: Predictor) -> None:
    (answer,) = predictor.predict([""])

    assert answer["num_tokens"] == 2


def test_what_is_cut_is_said(tiny_run: Path, predictor: Predictor) -> None:
    text = "the old cow " * 8

    (answer,) = predictor.predict([text])
    assert (answer["num_tokens"], answer["truncated"]) == (26, True)
    (answer,) = Predictor(tiny_run, max_seq_length=32).predict([text])
    assert (answer["num_tokens"], answer["truncated"]) == (26, False)
    (answer,) = Predictor(tiny_run, max_seq_length=4).predict(["a red cow"])
    assert (answer["num_tokens"], answer["truncated"]) == (5, True)
    with pytest.raises(UsageError, match=r"max_seq_length is 33, .* 32 tokens"):
        Predictor(tiny_run, max_seq_length=33)


@pytest.mark.parametrize(
    ("texts", "pairs", "message"),
    [
        (7, None, "texts is 7, of type int"),
        (["red"], "cow", "text_pairs is one text, 'cow': expected several"),
        (["red", "cow"], ["a"], "given: 2 texts, 1 second text"),
        (["red"], [], "given: 1 text, 0 second texts"),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    predictor: Predictor, texts: Any, pairs: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        predictor.predict(texts, pairs)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["red", None], r"texts\[1\] is missing"),
        (["red", float("nan")], r"texts\[1\] is missing"),
        (["red", 7], r"texts\[1\] is 7, of type int; give a text"),
        (["red", ["a", "b", "c"]], r"texts\[1\] is 3 values where one text is expected"),
    ],
)
def test_what_is_no_text_is_refused(predictor: Predictor, texts: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        predictor.predict(texts)


def test_evaluating_gives_the_metrics(predictor: Predictor, toy_examples: Examples) -> None:
    metrics = predictor.evaluate(toy_examples(60, seed=9))

    assert metrics["accuracy"] > 0.9
    assert (metrics["num_examples"], metrics["num_truncated"]) == (60, 0)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "no examples"),
        ([TextExample("red", None, "number", 7)], "'number', on line 7\nIt knows 2: animal"),
        ([TextExample("red", None, None, 7)], "line 7: the example has no label"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    predictor: Predictor, examples: list[TextExample], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        predictor.evaluate(examples)


@pytest.fixture(scope="module")
def pair_run(predictor: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy RUN, as one that was trained on pairs."""
    finished = FinetunedModel(
        predictor.task,
        predictor.model,
        predictor.tokenizer,
        BertConfig.from_dict(predictor.model.config.to_dict()),
        16,
        TrainingResult(0, 0, {}, 0.0, 0, 0),
        inputs="pair",
    )
    run = tmp_path_factory.mktemp("pairs")
    save(finished, run)
    return run


def test_pairs_are_answered_in_order(pair_run: Path) -> None:
    predictor = Predictor(pair_run)
    answers = predictor.predict(["red", "a cow and a hen"], ["a dog", "the hen"])

    (alone,) = predictor.predict(["a cow and a hen"], ["the hen"])
    assert [answer["num_tokens"] for answer in answers] == [6, 10]
    assert answers[1]["scores"] == pytest.approx(alone["scores"], abs=1e-5)


def test_pairs_to_a_model_of_single_texts_and_the_reverse_are_errors(
    predictor: Predictor, pair_run: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="a pair of texts, but the model was trained on single"):
        predictor.predict(["red"], ["hen"])
    with pytest.raises(DataError, match="line 7: a pair of texts"):
        predictor.evaluate([TextExample("red", "hen", "colour", 7)])
    with pytest.raises(DataError, match="a single text, but the model was trained on pairs"):
        Predictor(pair_run).predict(["red"])

    older = tmp_path / "older"
    shutil.copytree(pair_run, older)
    metadata = json.loads((older / "tidybert.json").read_text())
    del metadata["inputs"], metadata["reading"]
    (older / "tidybert.json").write_text(json.dumps(metadata))
    assert Predictor(older).predict(["red"])
    assert Predictor(older).predict(["red"], ["hen"])


def test_a_model_of_texts_and_pairs_takes_both() -> None:
    mixed = [TextExample("red", "hen", None, 1), TextExample("red", None, None, 2)]

    assert Classification.inputs_of(mixed) is None
    assert Classification.inputs_of(mixed[1:]) == TEXT


def test_it_shows_itself(predictor: Predictor, tiny_run: Path) -> None:
    assert repr(predictor).startswith(f"Predictor(run='{tiny_run}', task='classify', device='cpu'")
    html = predictor._repr_html_()
    assert "<th>labels</th><td>animal, colour</td>" in html
    assert "<th>accuracy_on_dev</th>" in html


def test_the_names_of_other_libraries_give_the_same(predictor: Predictor) -> None:
    texts = ["a red cat", "the old dog"]
    answers = predictor.predict(texts)

    assert predictor(texts) == answers
    assert predictor(texts[0]) == answers[0]
    scores = [[one["scores"][name] for name in predictor.task.names] for one in answers]
    assert predictor.predict_proba(texts).tolist() == scores
    assert predictor.predict_proba(texts[0]).tolist() == scores[0]
    assert predictor.predict_proba([]).shape == (0, len(predictor.task.names))


def test_scores_have_no_probabilities(tiny_score_run: Path) -> None:
    with pytest.raises(UsageError, match=r"predict_proba is for classes, and .* is to regress"):
        Predictor(tiny_score_run).predict_proba(["a"])


def test_a_script_that_the_vocabulary_lacks_is_told_once(tiny_run: Path) -> None:
    predictor = Predictor(tiny_run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor.predict(["the red cat ก"])
    with pytest.warns(DataWarning, match=r"[\d.]+% of the tokens are \[UNK\]"):
        predictor.predict(["กข คง", "จฉ"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor.predict(["กข คง", "จฉ"])
    with pytest.warns(DataWarning, match=r"100.0% of the tokens are \[UNK\]"):
        Embedder(tiny_run).embed(["กข คง", "จฉ"])
