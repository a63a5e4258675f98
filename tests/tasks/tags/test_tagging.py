"""tag: labels, loss, words in windows, entities with their places, metrics and calibration."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.foreign_models import LENGTH, save_model
from tests.tasks.fixed_outputs import dicts_of
from torch import Tensor, nn

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import collate
from tidybert.data.features import Features
from tidybert.errors import DataError
from tidybert.files.reading import ReadOptions
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.inference.predictor import Predictor
from tidybert.metrics.entity_scores import entities
from tidybert.tasks.tags.tag_files import TaggedExample, read_tagged, untagged
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.task_options import TagOptions
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.library_encoder import AddedToken
from tidybert.tokenization.vocabulary import Vocabulary

LETTERS = "abcd"
TOKENIZER = BertTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{each}" for each in LETTERS)]
)
COLOURS = ("red", "green", "blue", "white")
ANIMALS = ("cat", "dog", "cow", "hen")
NAMES = ("O", "B-x", "I-x", "B-y", "I-y")


def tagged(words: str, tags: str | None = None, row: int = 1) -> TaggedExample:
    return TaggedExample(tuple(words.split()), tuple(tags.split()) if tags else None, row)


def says(task: Tagging, features: list[Features], wanted: dict[int, str]) -> list[Any]:
    """Outputs in which each word that a window answers for has the tag wanted, with odds of e."""
    outputs = []
    for one in features:
        logits = np.full((len(one.input_ids), len(NAMES)), -40.0, dtype=np.float32)
        for word, row in zip(one.place.words.tolist(), one.place.rows.tolist(), strict=True):
            logits[row, 0] = 0.0
            logits[row, NAMES.index(wanted.get(word, "O"))] = 1.0
        outputs.append(logits)
    return outputs


def answers(task: Tagging, examples: list[TaggedExample], wanted: dict[int, str]) -> list[Any]:
    features = task.features(examples, TOKENIZER, 32)
    return dicts_of(task.answers(says(task, features, wanted), features, examples))


# From the training data to a task, and back


def test_the_tags_are_learned_from_the_examples() -> None:
    examples = [tagged("a b", "O B-x"), tagged("c d", "B-y I-y")]

    task = Tagging.from_examples(examples, TagOptions(doc_stride=7))

    assert task.label_names == NAMES
    assert (task.of_entities, task.metric, task.doc_stride) == (True, "f1", 7)
    plain = Tagging.from_examples([tagged("a b c", "VB NN 10"), tagged("d", "9")], TagOptions())
    assert plain.label_names == ("9", "10", "NN", "VB")
    assert (plain.of_entities, plain.metric) == (False, "accuracy")


def test_a_task_reads_tags_as_those_it_learned(tmp_path: Path) -> None:
    """A file of few tags is not guessed at: that it lacks M is no reason to take S for a prefix."""
    (tmp_path / "a.conll").write_text("a S\nb B\nc E\n")

    def tags_of(task: Tagging | type[Tagging]) -> list[Any]:
        stream = task.read(tmp_path / "a.conll", ReadOptions(), need_label=True)
        return [one.tags for one in stream]

    assert tags_of(Tagging) == [("B-_", "B-_", "I-_")]
    words = Tagging(["B", "E", "M", "S"])
    assert tags_of(words) == [("S", "B", "E")]
    assert tags_of(pickle.loads(pickle.dumps(words))) == [("S", "B", "E")]
    assert tags_of(Tagging(["O", "B-_", "I-_"])) == [("B-_", "B-_", "I-_")]


def test_sentences_with_equal_words_stay_on_one_side() -> None:
    examples = [tagged(f"a{'b' * (row // 2)}", "O", row) for row in range(20)]

    train, dev = Tagging.hold_out(examples, 0.2, seed=1)

    assert (len(train), len(dev)) == (16, 4)
    assert not {one.words for one in train} & {one.words for one in dev}


@pytest.mark.parametrize("prefix", ["", "B-"])
def test_no_tag_is_measured_that_is_not_learned(prefix: str) -> None:
    """Tags that occur once are learned, whatever the seed, and as many sentences are held out."""
    rare = {7: "CD", 42: "FW", 99: "UH"}
    common = ("NN", "VB") if not prefix else ("O", "B-x")
    examples = [
        TaggedExample((f"w{row}", "is"), (common[row % 2], prefix + rare.get(row, "DT")), row)
        for row in range(100)
    ]
    for seed in range(200):
        train, dev = Tagging.hold_out(examples, 0.1, seed)

        assert (len(train), len(dev)) == (90, 10)
        learned = {tag for one in train for tag in one.tags or ()}
        assert {tag for one in dev for tag in one.tags or ()} <= learned
        assert Tagging.hold_out(examples, 0.1, seed) == (train, dev)


def test_sentences_that_cannot_be_spared_are_no_dev() -> None:
    examples = [
        tagged(word, tag) for word, tag in zip("abcd", ("NN", "VB", "DT", "CD"), strict=True)
    ]

    with pytest.raises(DataError, match="4 examples cannot be split: no text can be spared"):
        Tagging.hold_out(examples, 0.25, seed=1)


# Labels and loss


def test_labels_are_those_of_the_words_that_a_window_answers_for() -> None:
    task = Tagging(NAMES, doc_stride=2)
    examples = [tagged("a bc c d a b c", "O B-x I-x O B-y O O"), tagged("d", "B-x")]
    features = task.features(examples, TOKENIZER, 6)

    task.add_labels(features, examples)

    assert [label for one in features for label in one.label] == [0, 1, 2, 0, 3, 0, 0, 1]
    assert [one.weight for one in features] == [len(one.place.words) for one in features]


def test_tags_that_are_unknown_are_listed_with_their_lines() -> None:
    task = Tagging(NAMES)
    examples = [tagged("a b", "O B-x", 1), tagged("a b", "O b-x", 4), tagged("a b", "B-z b-x", 7)]

    message = r"^2 tags .*\n  'b-x', 2 times, the first on line 4\n  'B-z', on line 7\nIt knows 5"
    with pytest.raises(DataError, match=message):
        task.add_labels(task.features(examples, TOKENIZER, 8), examples)
    with pytest.raises(DataError, match="line 1: the words have no tags"):
        task.add_labels(task.features(examples[:1], TOKENIZER, 8), [tagged("a b")])


def test_logits_and_loss_are_those_of_transformers(
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., nn.Module],
    copy_weights: Callable[[nn.Module, nn.Module], nn.Module],
) -> None:
    config = tiny_config(vocab_size=len(TOKENIZER.vocabulary))
    theirs = reference(config, "BertForTokenClassification", num_labels=5)
    task = Tagging(NAMES)
    ours = copy_weights(theirs, task.build_model(config))
    examples = [
        tagged("abc d ab", "B-x I-x O"),
        tagged("b", "B-y"),
        tagged("a bc d a", "O O O I-y"),
    ]
    features = task.features(examples, TOKENIZER, 32)
    task.add_labels(features, examples)
    batch = collate(features)
    size = max(len(one.input_ids) for one in features)
    ids, labels = torch.zeros(3, size, dtype=torch.int64), torch.full((3, size), -100)
    mask = torch.zeros_like(ids)
    for number, one in enumerate(features):
        ids[number, : len(one.input_ids)] = torch.from_numpy(one.input_ids)
        mask[number, : len(one.input_ids)] = 1
        labels[number, one.place.rows] = torch.tensor(one.label)

    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask, labels=labels)
        logits = task.outputs(ours, batch)
        loss = task.loss(ours, batch)

    torch.testing.assert_close(logits, expected.logits[mask.bool()], rtol=1e-5, atol=1e-5)
    weight = sum(one.weight for one in features)
    assert weight == 8
    torch.testing.assert_close(loss / weight, expected.loss, rtol=1e-5, atol=1e-5)


class FixedLogits(nn.Module):
    """Stands for a model: it gives these logits of the rows that are asked for."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, _rows: Any, output_rows: Tensor, lower_states: Any) -> Tensor:
        return self.logits[output_rows]


def test_the_loss_is_a_weighted_sum_over_words(device: str) -> None:
    task = Tagging(NAMES)
    examples = [tagged("a b", "O B-x"), tagged("c", "B-y")]
    features = task.features(examples, TOKENIZER, 8)
    task.add_labels(features, examples)
    logits = torch.randn(7, 5).to(device)
    losses = -torch.log_softmax(logits, 1)[[1, 2, 5], [0, 1, 3]]

    assert task.loss(FixedLogits(logits), collate(features).to(device)).item() == pytest.approx(
        losses.sum().item(), rel=1e-5
    )
    # As an example's weight multiplies it.
    features[0].weight *= 3
    assert task.loss(FixedLogits(logits), collate(features).to(device)).item() == pytest.approx(
        (3 * losses[:2].sum() + losses[2]).item(), rel=1e-5
    )


# Answers


def test_entities_of_a_raw_text_stand_where_it_says() -> None:
    text = "  Zoë's (New  York), U.S."
    (example,) = Tagging.from_texts([text], None)
    wanted = {0: "B-x", 4: "B-y", 5: "I-y", 8: "I-x", 9: "I-x"}

    (answer,) = answers(Tagging(NAMES), [example], wanted)

    sure = np.e / (1 + np.e)
    assert answer["entities"] == [
        {"type": "x", "text": "Zoë", "start": 2, "end": 5, "score": pytest.approx(sure)},
        {"type": "y", "text": "New  York", "start": 9, "end": 18, "score": pytest.approx(sure)},
        {"type": "x", "text": "U.", "start": 21, "end": 23, "score": pytest.approx(sure)},
    ]
    assert all(text[one["start"] : one["end"]] == one["text"] for one in answer["entities"])
    assert answer["words"] == ["Zoë", "'", "s", "(", "New", "York", ")", ",", "U", ".", "S", "."]
    # I- that nothing goes before begins an entity, so the tags are valid IOB2.
    assert " ".join(answer["tags"]) == "B-x O O O B-y I-y O O B-x I-x O O"


def test_entities_of_words_stand_in_the_words_joined_by_spaces() -> None:
    words = ["saw", "New York", "and", "Bo"]
    examples = Tagging.from_texts([words], None)

    (answer,) = answers(Tagging(NAMES), examples, {1: "B-y", 3: "B-x"})

    assert answer["words"] == words
    assert [(one["text"], one["start"], one["end"]) for one in answer["entities"]] == [
        ("New York", 4, 12),
        ("Bo", 17, 19),
    ]


def test_the_score_of_an_entity_is_the_mean_of_its_words() -> None:
    task = Tagging(NAMES)
    examples = [tagged("a b c")]
    features = task.features(examples, TOKENIZER, 8)
    outputs = np.full((5, 5), -40, dtype=np.float32)
    outputs[1, 1], outputs[1, 0] = np.log(0.9), np.log(0.1)
    outputs[2, 2], outputs[2, 0] = np.log(0.6), np.log(0.4)
    outputs[3, 0] = 0

    (answer,) = dicts_of(task.answers([outputs], features, examples))

    (entity,) = answer["entities"]
    assert entity["score"] == pytest.approx(0.75)
    assert (entity["text"], answer["tags"]) == ("a b", ["B-x", "I-x", "O"])


def test_other_tags_are_answered_with_a_score_a_word() -> None:
    task = Tagging(["DT", "NN"])
    examples = Tagging.from_texts(["a b"], None)
    features = task.features(examples, TOKENIZER, 8)
    outputs = np.log(np.array([[1, 1], [3, 1], [1, 4], [1, 1]], dtype=np.float32))

    (answer,) = dicts_of(task.answers([outputs], features, examples))

    assert answer == {
        "words": ["a", "b"],
        "tags": ["DT", "NN"],
        "scores": [pytest.approx(0.75), pytest.approx(0.8)],
    }


def test_a_text_without_words_has_an_answer() -> None:
    examples = Tagging.from_texts(["", "a"], None)

    nothing, _ = answers(Tagging(NAMES), examples, {})

    assert nothing == {"words": [], "tags": [], "entities": []}


def test_second_texts_are_refused() -> None:
    with pytest.raises(DataError, match="second texts were given"):
        Tagging.from_texts(["a"], ["b"])


def test_a_word_is_answered_by_the_window_with_most_context() -> None:
    task = Tagging(NAMES, doc_stride=2)
    examples = [tagged("a b c d a b c")]
    features = task.features(examples, TOKENIZER, 6)
    # Each window has a tag of its own for all it sees: 0 to 2, 3 and 4, 5 and 6 are theirs.
    outputs = [
        np.eye(5, dtype=np.float32)[np.full(len(one.input_ids), tag)]
        for one, tag in zip(features, (1, 3, 2), strict=True)
    ]

    (answer,) = dicts_of(task.answers(outputs, features, examples))

    assert answer["tags"] == ["B-x"] * 3 + ["B-y"] * 2 + ["B-x", "I-x"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=4),
    st.integers(3, 12),
)
def test_every_word_of_any_text_has_a_tag(
    network: nn.Module, texts: list[str], max_seq_length: int
) -> None:
    task = Tagging(NAMES)
    examples = [*Tagging.from_texts(texts, None), *Tagging.from_texts([texts], None)]
    features = task.features(examples, TOKENIZER, max_seq_length)

    found = dicts_of(task.answers(run_features(task, network, features), features, examples))

    assert len(found) == len(texts) + 1
    for example, answer in zip(examples, found, strict=True):
        text, _ = example.located()
        assert len(answer["tags"]) == len(answer["words"]) == len(example.words)
        assert len(answer["entities"]) == len(entities(answer["tags"]))
        for one in answer["entities"]:
            assert text[one["start"] : one["end"]] == one["text"]
            assert 0 < one["score"] <= 1


@pytest.fixture(scope="module")
def network(tiny_config: Callable[..., BertConfig]) -> nn.Module:
    torch.manual_seed(1)
    return Tagging(NAMES).build_model(tiny_config(initializer_range=1.0)).eval()


# Scores


def labelled_pair() -> tuple[list[TaggedExample], dict[int, str]]:
    return [tagged("a b c", "B-x I-x O", 1), tagged("d a b", "B-y O O", 5)], {0: "B-x", 1: "I-x"}


def test_metrics_scorer_and_judgements_agree() -> None:
    task = Tagging(NAMES)
    examples, wanted = labelled_pair()
    features = task.features(examples, TOKENIZER, 8)
    task.add_labels(features, examples)
    outputs = says(task, features, wanted)

    metrics = task.answers(outputs, features, examples).metrics()
    first, second = [*task.answers(outputs, features, examples).judgements()]
    score = task.answers(outputs, features, examples).metrics

    # The second sentence is taken for x x O, its y is missed.
    assert metrics["f1"] == metrics[task.metric] == pytest.approx(0.5)
    assert metrics["accuracy"] == pytest.approx(4 / 6)
    assert metrics["per_label"]["y"]["recall"] == 0.0
    assert set(metrics) - {"per_label"} <= set(task.meanings)
    assert score(np.array([0, 1])) == {key: metrics[key] for key in score(np.array([0]))}
    assert score(np.array([0, 0]))["f1"] == 1.0
    sure = np.e / (1 + np.e)
    assert (first.expected, first.predicted, first.correct) == ("x: a b", "x: a b", 1.0)
    assert (first.text, first.row, first.num_tokens) == ("a b c", 1, 5)
    assert task.correctness == "F1 per sentence"
    assert first.confidence == pytest.approx(sure)
    assert first.expected_probability == pytest.approx(sure)
    assert (second.expected, second.predicted, second.correct) == ("y: d", "x: d a", 0.0)
    assert second.expected_probability == pytest.approx(0.0, abs=1e-9)


def test_judgements_of_other_tags_are_shares_of_words() -> None:
    task = Tagging(["DT", "NN"])
    examples = [tagged("a b", "DT NN")]
    features = task.features(examples, TOKENIZER, 8)
    outputs = [np.array([[0, 0], [1, 0], [2, 0], [0, 0]], dtype=np.float32)]

    (judgement,) = [*task.answers(outputs, features, examples).judgements()]

    assert (judgement.expected, judgement.predicted) == ("DT NN", "DT DT")
    assert judgement.correct == 0.5
    # The metric accuracy counts the words of all sentences together.
    assert task.correctness == "fraction right per sentence"
    assert judgement.confidence == pytest.approx(np.e / (1 + np.e))
    assert judgement.expected_probability == pytest.approx(1 / (1 + np.e**2))
    assert task.answers(outputs, features, examples).metrics()["macro_f1"] == pytest.approx(1 / 3)


def test_no_entity_is_said_and_is_right_where_none_is_there() -> None:
    task = Tagging(NAMES)
    examples = [tagged("a", "O")]
    features = task.features(examples, TOKENIZER, 8)

    (judgement,) = [*task.answers(says(task, features, {}), features, examples).judgements()]

    assert (judgement.expected, judgement.predicted, judgement.correct) == (
        "no entity",
        "no entity",
        1,
    )


def test_the_temperature_makes_the_words_probabilities_right() -> None:
    task = Tagging(["DT", "NN"], doc_stride=5)
    examples = [tagged("a", "DT" if row % 4 else "NN", row) for row in range(4000)]
    features = task.features(examples, TOKENIZER, 8)
    # All are taken for DT with odds of 9 to 1, and one in four is none.
    outputs: list[npt.NDArray[np.float32]] = [
        np.log(np.array([[1, 1], [9, 1], [1, 1]], dtype=np.float32)) for _ in examples
    ]

    fitted = task.calibrated(task.answers(outputs, features, examples))

    assert dicts_of(fitted.answers(outputs, features, examples))[0]["scores"] == [
        pytest.approx(0.75, abs=0.01)
    ]
    assert fitted.settings() == {
        "temperature": pytest.approx(np.log(9) / np.log(3), rel=0.02),
        "doc_stride": 5,
        "running_text": True,
    }
    assert (
        fitted.answers(outputs, features, examples).metrics()
        == task.answers(outputs, features, examples).metrics()
    )


# From a file to a RUN


@pytest.fixture(scope="module")
def toy_sentences(toy_examples: Callable[..., Any]) -> Callable[..., list[TaggedExample]]:
    """Sentences in which each colour and each animal is an entity."""

    def build(count: int, seed: int = 0) -> list[TaggedExample]:
        kinds = dict.fromkeys(COLOURS, "B-colour") | dict.fromkeys(ANIMALS, "B-animal")
        return [
            tagged(one.text, " ".join(kinds.get(word, "O") for word in one.text.split()), one.row)
            for one in toy_examples(count, seed)
        ]

    return build


def test_a_run_is_trained_measured_and_answers(
    tiny_model: Path,
    toy_sentences: Callable[..., list[TaggedExample]],
    toy_arguments: Callable[..., Any],
    tmp_path: Path,
) -> None:
    train, dev = toy_sentences(96), toy_sentences(48, seed=1)
    task = Tagging.from_examples(train, TagOptions(doc_stride=4))
    run = tmp_path / "run"

    finished = run_finetuning(
        FinetuningJob(
            task,
            tiny_model,
            train,
            dev,
            toy_arguments(num_train_epochs=8),
            max_seq_length=10,
            out=run,
            device="cpu",
        )
    )

    assert finished.result.metrics["f1"] > 0.95
    predictor = Predictor(run, device="cpu")
    assert predictor.task.settings() == finished.task.settings()
    assert predictor.metadata.settings["running_text"] is True
    measured = predictor.evaluate(dev)
    assert measured["num_truncated"] == 0
    assert measured["f1"] == finished.result.metrics["f1"]
    text = "the old cow  and under a\tred hen " * 6
    (answer,) = predictor.predict([text])
    assert answer["num_tokens"] == 50
    assert not answer["truncated"]
    assert [one["text"] for one in answer["entities"]] == ["cow", "red", "hen"] * 6
    assert {one["type"] for one in answer["entities"]} == {"animal", "colour"}


def test_words_that_share_a_piece_are_one(tmp_path: Path) -> None:
    """[b], an added token, is three words; the model reads them at one row."""
    tokenizer = BertTokenizer(
        Vocabulary([*TOKENIZER.vocabulary.tokens, "[b]"], num_added=1),
        added=[AddedToken("[b]", TOKENIZER.vocab_size)],
    )
    text = "a [b] c"
    tags = ("O", "B-x", "I-x", "I-x", "B-x")
    one = replace(untagged(text, 1), tags=tags)
    task = Tagging(NAMES)

    (feature,) = task.features([one], tokenizer, 16)
    task.add_labels([feature], [one])

    assert feature.input_ids.tolist() == tokenizer.encode(text).input_ids
    assert feature.place.rows.tolist() == [1, 2, 2, 2, 3]
    # The row has one right tag, that of its first word.
    assert feature.label == (0, 1, 1, 1, 1)
    logits = np.zeros((5, 5), dtype=np.float32)
    logits[[1, 2, 3], [0, 1, 1]] = 9.0
    found = task.answers([logits], [feature], [one])
    assert found.tags == [[*tags]]
    assert [each["text"] for each in dicts_of(found)[0]["entities"]] == ["[b]", "c"]
    assert found.label_ids == [0, 1, 1, 1, 1]
    assert found.metrics()["f1"] == 1.0


def test_a_run_is_answered_as_it_was_trained(tmp_path: Path) -> None:
    """Over byte-level BPE, where a word alone and in a text have other pieces."""
    save_model(
        tmp_path, "bytes", "ForTokenClassification", 0,
        id2label=dict(enumerate(NAMES)), label2id={name: n for n, name in enumerate(NAMES)},
    )  # fmt: skip
    text = "the lazy cat"
    theirs = Predictor(tmp_path, device="cpu")
    ids = {}
    for name, entry in (("old", {}), ("new", {"running_text": True})):
        ModelMetadata("tag", NAMES, LENGTH, settings=entry).write(tmp_path)
        run = Predictor(tmp_path, device="cpu")
        (feature,) = run.task.features(run.task.from_texts([text], None), run.tokenizer, LENGTH)
        ids[name] = feature.input_ids.tolist()
        assert run.task.settings()["running_text"] is (name == "new")
        assert run.task.calibrated(run.examine([tagged("a b", "O B-x")])).settings() == {
            **run.task.settings(), "temperature": ANY, "entity_scores": ANY,
        }  # fmt: skip

    own = run.tokenizer
    assert ids["new"] == own.encode(text).input_ids
    alone = [own.encode(word, add_special_tokens=False).input_ids for word in text.split()]
    assert ids["old"] == [own.cls_token_id, *chain(*alone), own.sep_token_id]
    assert ids["old"] != ids["new"]
    assert theirs.predict(text) == run.predict(text)


def test_a_model_of_transformers_is_read(
    tiny_model: Path,
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., nn.Module],
    tmp_path: Path,
) -> None:
    names = dict(enumerate(NAMES))
    theirs: Any = reference(tiny_config(), "BertForTokenClassification", id2label=names)
    theirs.save_pretrained(tmp_path)
    BertTokenizer.from_pretrained(tiny_model).save(tmp_path)

    predictor = Predictor(tmp_path, device="cpu")

    assert isinstance(predictor.task, Tagging)
    assert predictor.task.label_names == NAMES
    words = ["the", "red", "cow"]
    ids = torch.tensor([[2, *predictor.tokenizer.convert_tokens_to_ids(words), 3]])
    with torch.no_grad():
        best = theirs(input_ids=ids).logits[0, 1:-1].argmax(1).tolist()
    (answer,) = predictor.predict([words])
    assert entities(answer["tags"]) == entities([NAMES[label] for label in best])


@pytest.mark.real_data
def test_conll_2003_is_read_without_a_loss(real_data: Path, minilm_directory: Path) -> None:
    examples = list(read_tagged(real_data / "ner/conll2003/test.txt", need_label=True))
    task = Tagging.from_examples(examples, TagOptions())
    tokenizer = BertTokenizer.from_pretrained(minilm_directory)

    features = task.features(examples, tokenizer, 64)
    task.add_labels(features, examples)

    assert task.label_names is not None
    assert len(task.label_names) == 9
    assert sum(one.weight for one in features) == 46435
    assert max(len(one.input_ids) for one in features) == 64
    assert not any(one.truncated for one in features)
