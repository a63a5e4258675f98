"""answer: loss, logits beside transformers', and a tiny model from data to answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.fixed_outputs import dicts_of
from torch import nn
from torch.nn import functional

from tidybert.configuration import BertConfig
from tidybert.data.batching import collate
from tidybert.errors import DataError, UsageError
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.inference.predictor import Predictor
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.registry import task_class
from tidybert.tasks.task_options import QuestionOptions
from tidybert.tokenization import BertTokenizer

ANIMALS = ("cat", "dog", "cow", "hen")
FILLERS = ("is", "was", "near", "under", "old", "new", "we", "saw")
LENGTHS = {"max_query_length": 4, "max_answer_length": 3}


def toy_questions(count: int, seed: int, impossible: bool = False) -> list[QuestionExample]:
    """Which animal stands in the text?  Some texts are longer than a window.

    Where ``impossible``, a third of the texts has none.
    """
    random = np.random.default_rng(seed)
    examples = []
    for row in range(1, count + 1):
        words = [str(word) for word in random.choice(FILLERS, random.integers(4, 40))]
        found = None if impossible and row % 3 == 0 else str(random.choice(ANIMALS))
        if found:
            words[int(random.integers(len(words)))] = found
        context = "  ".join(words)
        answers = ((found, context.index(found)),) if found else ()
        examples.append(
            QuestionExample(str(row), "the red one", context, answers, not found or None, row)
        )
    return examples


def features_of(task: QuestionAnswering, examples: list[QuestionExample], model: Path) -> Any:
    tokenizer = BertTokenizer.from_pretrained(model)
    features = task.features(examples, tokenizer, 32)
    task.add_labels(features, examples)
    return features


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    toy_arguments: Callable[..., Any],
) -> Callable[[bool], tuple[Path, FinetunedModel]]:
    """Makes a RUN of the tiny model that has learned the toy questions."""
    made: dict[bool, tuple[Path, FinetunedModel]] = {}

    def train(impossible: bool) -> tuple[Path, FinetunedModel]:
        if impossible not in made:
            run = tmp_path_factory.mktemp("runs") / "answers"
            examples = toy_questions(256, 0, impossible)
            task = QuestionAnswering.from_examples(examples, QuestionOptions(**LENGTHS))
            dev = toy_questions(60, 1, impossible)
            arguments = toy_arguments(num_train_epochs=6)
            made[impossible] = (
                run,
                run_finetuning(
                    FinetuningJob(
                        task, tiny_model, examples, dev, arguments, max_seq_length=32, out=run
                    )
                ),
            )
        return made[impossible]

    return train


# Loss and logits


def test_the_loss_is_the_mean_of_two_cross_entropies_over_the_rows_of_each_window(
    tiny_model: Path, tiny_config: Callable[..., BertConfig], device: str
) -> None:
    task = QuestionAnswering(max_query_length=4)
    features = features_of(task, toy_questions(6, seed=2), tiny_model)
    features[1].weight = 3.0
    assert len({len(one.input_ids) for one in features}) > 1
    assert any(one.label == (0, 0) for one in features)
    batch = collate(features).to(device)
    model = task.build_model(tiny_config()).eval().to(device)

    loss = task.loss(model, batch)

    logits = task.outputs(model, batch)
    assert logits.shape == (batch.rows.num_tokens, 2)
    expected = torch.zeros((), device=device)
    for one, rows in zip(features, logits.split(list(batch.rows.lengths)), strict=True):
        starts_and_ends = functional.cross_entropy(rows.T, torch.tensor(one.label, device=device))
        expected = expected + one.weight * starts_and_ends
    torch.testing.assert_close(loss, expected)


def test_the_probabilities_of_tokens_in_one_place_add_up(
    tiny_model: Path, tiny_config: Callable[..., BertConfig]
) -> None:
    task = QuestionAnswering(max_query_length=4)
    features = features_of(task, toy_questions(2, seed=2), tiny_model)[:2]
    features[0].label = (3, 4, 3, 5, 4, 5)
    batch = collate(features)
    model = task.build_model(tiny_config()).eval()

    losses = task.losses(task.outputs(model, batch), batch)

    first, second = task.outputs(model, batch).split(list(batch.rows.lengths))
    starts, ends = first.softmax(0).unbind(1)
    share = starts[3] * ends[4] + starts[3] * ends[5] + starts[4] * ends[5]
    labels = torch.tensor(features[1].label)
    expected = torch.stack([-share.log() / 2, functional.cross_entropy(second.T, labels)])
    torch.testing.assert_close(losses, expected)


def test_the_gradient_of_a_window_does_not_depend_on_those_beside_it(
    tiny_model: Path, tiny_config: Callable[..., BertConfig]
) -> None:
    task = QuestionAnswering(max_query_length=4)
    features = features_of(task, toy_questions(4, seed=2), tiny_model)
    model = task.build_model(tiny_config()).eval()

    def gradient(*batches: Any) -> torch.Tensor:
        model.zero_grad()
        for batch in batches:
            task.loss(model, collate(batch)).backward()
        (found,) = [p.grad for n, p in model.named_parameters() if n == "qa_outputs.weight"]
        assert torch.isfinite(found).all()
        return found.clone()

    torch.testing.assert_close(gradient(features), gradient(*([one] for one in features)))


def test_logits_are_transformers_on_padded_windows(
    tiny_model: Path,
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., nn.Module],
    copy_weights: Callable[..., nn.Module],
) -> None:
    import transformers

    config = tiny_config()
    theirs = reference(config, "BertForQuestionAnswering")
    task = QuestionAnswering(max_query_length=4, doc_stride=7)
    ours = copy_weights(theirs, task.build_model(config))
    examples = toy_questions(12, seed=3)

    features = features_of(task, examples, tiny_model)
    outputs = run_features(task, ours, features)

    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    number = 0
    for example in examples:
        asked = len(tokenizer(example.question, add_special_tokens=False)["input_ids"])
        encoded = tokenizer(
            example.question,
            example.context,
            truncation="only_second",
            max_length=32,
            stride=32 - asked - 3 - 7,
            return_overflowing_tokens=True,
            padding="max_length",
            return_tensors="pt",
        )
        encoded.pop("overflow_to_sample_mapping")
        with torch.no_grad():
            found = theirs(**encoded)
        for row, mask in enumerate(encoded["attention_mask"]):
            size = int(mask.sum())
            expected = torch.stack([found.start_logits[row], found.end_logits[row]], dim=1)
            torch.testing.assert_close(
                torch.from_numpy(outputs[number]), expected[:size], atol=1e-5, rtol=0
            )
            number += 1
    assert number == len(features) > len(examples)


# From data to answers


@pytest.mark.parametrize("impossible", [False, True])
def test_a_tiny_model_learns_to_answer(trained: Any, impossible: bool) -> None:
    run, finished = trained(impossible)
    metrics = finished.result.metrics
    assert metrics["f1"] > 0.9
    assert metrics["exact_match"] > 0.9
    assert ("best_f1" in metrics) == impossible

    predictor = Predictor(run)
    examples = toy_questions(40, 5, impossible)
    answers = predictor.predict(examples)

    json.dumps(answers, allow_nan=False)
    for example, answer in zip(examples, answers, strict=True):
        assert answer["id"] == example.id
        # Of n words 3 n - 3 spans of one to three.
        assert len(answer["n_best"]) == min(20, 3 * len(example.context.split()) - 3)
        assert 0 < answer["score"] <= 1
        for each in [*answer["n_best"], *[answer] * (answer["start"] is not None)]:
            assert example.context[each["start"] : each["end"]] == each["answer"]
        shares = [each["score"] for each in answer["n_best"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) + answer.get("null_score", 0) <= 1 + 1e-9
        assert answer["num_tokens"] > 0
    right = sum(
        answer["answer"] == (example.answers[0][0] if example.answers else "")
        for example, answer in zip(examples, answers, strict=True)
    )
    measured = predictor.evaluate(examples)
    assert measured["exact_match"] == pytest.approx(right / 40)
    assert right >= 34
    assert measured["num_examples"] == 40


def test_questions_and_texts_are_given_as_two_lists(trained: Any) -> None:
    predictor = Predictor(trained(False)[0])
    examples = toy_questions(3, seed=6)

    answers = predictor.predict(
        [one.question for one in examples], [one.context for one in examples]
    )

    assert answers == predictor.predict(examples)
    with pytest.raises(DataError, match="only questions were given; give the text of each"):
        predictor.predict(["what is it"])


def test_a_model_that_transformers_saved_answers(
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    theirs = reference(tiny_config(max_position_embeddings=96), "BertForQuestionAnswering")
    theirs.save_pretrained(tmp_path)
    BertTokenizer.from_pretrained(tiny_model).save(tmp_path)

    (answer,) = Predictor(tmp_path).predict(["the red one"], ["we  saw a dog"])

    assert "we  saw a dog"[answer["start"] : answer["end"]] == answer["answer"]
    assert "null_score" not in answer


def test_what_is_fitted_on_dev_is_stored_and_read_again(trained: Any) -> None:
    run, finished = trained(True)
    stored = json.loads((run / "tidybert.json").read_text())["settings"]

    assert stored == finished.task.settings()
    assert stored["no_answers"] is True
    assert stored["max_query_length"] == 4
    assert stored["null_score_diff_threshold"] != 0.0
    assert Predictor(run).task.settings() == stored
    # The threshold is the best one of dev, which it was fitted on.
    assert finished.result.metrics["f1"] == pytest.approx(finished.result.metrics["best_f1"])


def test_the_best_checkpoint_does_not_depend_on_the_threshold() -> None:
    assert QuestionAnswering().metric == "f1"
    assert QuestionAnswering(no_answers=True).metric == "best_f1"
    # As it is once the threshold is fitted, so that a report tells what chose the weights.
    assert QuestionAnswering(no_answers=True, null_score_diff_threshold=-1.5).metric == "best_f1"


def test_threshold_and_temperature_are_fitted_where_answers_are_not_all_right(
    trained: Any, tiny_model: Path
) -> None:
    _, finished = trained(True)
    examples = toy_questions(60, 7, impossible=True)
    task = QuestionAnswering.from_examples(examples, QuestionOptions(**LENGTHS))
    features = features_of(task, examples, tiny_model)
    random = np.random.default_rng(0)
    outputs = []
    for logits in run_features(task, finished.model, features):
        noisy = logits + random.normal(0, 4, logits.shape).astype(np.float32)
        # A [CLS] that scores too high would leave most questions without an answer.
        noisy[0] += 5
        outputs.append(noisy)
    before = task.answers(outputs, features, examples).metrics()
    assert before["f1"] < before["best_f1"] < 1

    fitted = task.calibrated(task.answers(outputs, features, examples))

    assert fitted.answers(outputs, features, examples).metrics()["f1"] == pytest.approx(
        before["best_f1"]
    )
    assert fitted.threshold > 0
    assert fitted.temperature > 1
    likelihoods = [
        np.mean(np.log([one.expected_probability for one in judged]))
        for judged in (
            [*each.answers(outputs, features, examples).judgements()] for each in (task, fitted)
        )
    ]
    assert likelihoods[1] > likelihoods[0]
    given = QuestionOptions(null_score_diff_threshold=-3.5, **LENGTHS)
    kept = QuestionAnswering.from_examples(examples, given)
    assert kept.calibrated(kept.answers(outputs, features, examples)).settings() == {
        **kept.settings(),
        "temperature": fitted.temperature,
    }


def test_judgements_and_scores_of_a_choice_agree_with_the_metrics(
    trained: Any, tiny_model: Path
) -> None:
    _, finished = trained(True)
    task = finished.task
    examples = toy_questions(45, 8, impossible=True)
    features = features_of(task, examples, tiny_model)
    outputs = run_features(task, finished.model, features)
    metrics = task.answers(outputs, features, examples).metrics()

    judgements = [*task.answers(outputs, features, examples).judgements()]
    score = task.answers(outputs, features, examples).metrics

    assert np.mean([one.correct for one in judgements]) == pytest.approx(metrics["f1"])
    assert {one.expected for one in judgements if not one.row % 3} == {"no answer"}
    for one, answer in zip(
        judgements, dicts_of(task.answers(outputs, features, examples)), strict=True
    ):
        assert one.predicted == (answer["answer"] or "no answer")
        assert one.confidence == answer["score"]
        if one.correct == 1:
            assert one.expected_probability == pytest.approx(answer["score"])
    everything = score(np.arange(45))
    assert everything == {key: value for key, value in metrics.items() if "total" not in key}
    right = np.array([number for number, one in enumerate(judgements) if one.correct == 1])
    assert score(np.repeat(right, 2))["exact_match"] == 1.0
    assert task.meanings.keys() <= everything.keys()


def test_a_model_without_empty_answers_is_measured_on_2_0(trained: Any, tiny_model: Path) -> None:
    _, finished = trained(False)
    examples = toy_questions(30, 9, impossible=True)
    features = features_of(finished.task, examples, tiny_model)
    outputs = run_features(finished.task, finished.model, features)

    metrics = finished.task.answers(outputs, features, examples).metrics()

    assert metrics["no_ans_f1"] == 0.0
    assert metrics["no_ans_total"] == 10
    assert "best_f1" not in metrics
    assert all(one.expected_probability is None
               for one in [*finished.task.answers(outputs, features, examples).judgements()]
               if one.expected == "no answer")  # fmt: skip


# Options and settings


def test_the_defaults_are_those_of_run_squad() -> None:
    task = QuestionAnswering.from_examples(toy_questions(3, 0), QuestionOptions())

    assert task.settings() == {
        "no_answers": False,
        "doc_stride": None,
        "max_query_length": 64,
        "max_answer_length": 30,
        "n_best_size": 20,
        "null_score_diff_threshold": 0.0,
        "temperature": 1.0,
    }
    assert task_class("answer", QuestionOptions(doc_stride=5)) is QuestionAnswering


def test_a_threshold_without_questions_that_need_one_is_refused() -> None:
    with pytest.raises(UsageError, match="null_score_diff_threshold has no meaning where every"):
        QuestionAnswering.from_examples(
            toy_questions(3, 0), QuestionOptions(null_score_diff_threshold=0.0)
        )


def test_a_context_stays_on_one_side() -> None:
    examples = [QuestionExample(str(n), "Who?", f"context {n % 30}") for n in range(120)]

    train, dev = QuestionAnswering.hold_out(examples, 0.2, seed=1)

    assert len(dev) == 24
    assert sorted([*train, *dev], key=lambda one: int(one.id)) == examples
    assert not {one.context for one in train} & {one.context for one in dev}
    assert QuestionAnswering.hold_out(examples, 0.2, seed=1) == (train, dev)
    assert QuestionAnswering.hold_out(examples, 0.2, seed=2) != (train, dev)
