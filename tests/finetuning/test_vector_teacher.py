"""embed learns a MODEL's vectors or a cross-encoder's scores, and refuses other teachers."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tidybert
from tidybert.checkpoints.example_kinds import PAIR
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.cli.main import run as shell
from tidybert.errors import DataError, TidyBertError, TrainingError, UsageError
from tidybert.estimators import BertVectorizer
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import CrossEncoder
from tidybert.modeling import BertModel
from tidybert.system.reporter import Reporter
from tidybert.tasks.regression import Regression
from tidybert.tasks.task_options import VectorOptions
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tokenization import BertTokenizer
from tidybert.training.reports import StepReport
from tidybert.training.training_arguments import TrainingArguments

COLOURS = ("red", "blue", "green", "black")
ANIMALS = ("dog", "cat", "cow", "horse")
PAIRS = [(f"the {c} {a}", f"we saw a {a} {c}") for c in COLOURS for a in ANIMALS]
TRIPLETS = [(*pair, PAIRS[at - 3][1]) for at, pair in enumerate(PAIRS)]
UNSEEN = ["the cat", "a black cow saw the dog", "red and blue", "we saw a green horse", "a dog red"]
QUICK: dict[str, Any] = {"dev": 0, "max_seq_length": 16, "train_batch_size": 8}


def train(data: Any, model: Path, **given: Any) -> FinetunedModel[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tidybert.finetune(data, "embed", model, **{**QUICK, **given})


@pytest.fixture(scope="session")
def wide_teacher(tmp_path_factory: pytest.TempPathFactory, tiny_config: Any) -> Path:
    """An encoder of width 32 with another vocabulary, in another order and larger."""
    directory = tmp_path_factory.mktemp("teachers") / "wide"
    words = sorted({word for pair in PAIRS for text in pair for word in text.split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, "zebra", *words[::-1], "was", "near", "old", "and"]
    config = tiny_config(hidden_size=32, vocab_size=len(vocabulary))
    torch.manual_seed(3)
    save_model_directory(
        directory,
        model_state=BertModel(config, add_pooler=False).state_dict(),
        config=config,
        tokenizer=BertTokenizer(vocabulary),
        metadata=ModelMetadata("pretrain", max_seq_length=16, settings={"objective": "mlm"}),
        architecture="BertModel",
    )
    return directory


@pytest.fixture(scope="session")
def pair_teacher(tmp_path_factory: pytest.TempPathFactory, tiny_config: Any) -> Path:
    """A RUN of regress over pairs, whose scores are around 100."""
    from tests.conftest import TINY_VOCABULARY

    directory = tmp_path_factory.mktemp("teachers") / "pairs"
    task, config = Regression(), tiny_config()
    torch.manual_seed(4)
    state = task.build_model(config).state_dict()
    state["classifier.bias"] = torch.tensor([100.0])
    save_model_directory(
        directory,
        model_state=state,
        config=config,
        tokenizer=BertTokenizer(TINY_VOCABULARY),
        metadata=ModelMetadata(task.name, None, 16, inputs=PAIR, settings=task.settings()),
        architecture=task.architecture,
        problem_type=task.problem_type,
    )
    return directory


def test_a_student_of_another_width_comes_near_its_teachers_cosines_on_other_texts(
    tiny_model: Path, wide_teacher: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"learning_rate": 5e-3, "seed": 2, "dropout": 0.0}
    more = [text for pair in PAIRS for text in pair] + ["a red old cat", "near a black dog"] * 8

    train(
        PAIRS,
        tiny_model,
        teacher=wide_teacher,
        teacher_weight=1.0,
        unlabelled=more,
        num_train_epochs=15,
        out=tmp_path / "student",
        **given,
    )

    train(PAIRS, tiny_model, num_train_epochs=0, out=tmp_path / "before", **given)

    def cosines(model: Path) -> Any:
        vectors = Embedder(model, normalize=True).embed(UNSEEN)
        return (vectors @ vectors.T)[np.triu_indices(len(UNSEEN), 1)]

    theirs = cosines(wide_teacher)
    before, after = (
        np.abs(cosines(tmp_path / name) - theirs).mean() for name in ("before", "student")
    )
    assert after < 0.7 * before
    record = json.loads((tmp_path / "student" / "arguments.json").read_text())["record"]
    assert record["num_unlabelled"] == len(more)
    assert record["teacher"]["run"] == str(wide_teacher)


def test_a_student_that_is_the_teacher_has_nothing_to_learn(tiny_model: Path) -> None:
    losses: list[float] = []
    arguments = TrainingArguments(max_steps=2, train_batch_size=8, dropout=0.0, learning_rate=1e-9)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_finetuning(
            FinetuningJob(
                "embed", tiny_model, PAIRS, None, arguments, max_seq_length=16, dev_fraction=0.0,
                teacher=tiny_model, teacher_weight=1.0, unlabelled=UNSEEN,
                task_options=VectorOptions(),
            ),
            Reporter(step=lambda done: losses.append(done.loss)),
        )  # fmt: skip

    assert losses == [pytest.approx(0.0, abs=1e-5)] * 2


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., Any]:
    """Trains a step, and gives what the teacher answered to each example, and the notes."""
    kept: list[Any] = []
    objective = SentenceVectors.objective

    def spied(self: Any, model: Any, features: Any, *given: Any, **more: Any) -> Any:
        kept[:] = [one.taught for one in features]
        return objective(self, model, features, *given, **more)

    monkeypatch.setattr(SentenceVectors, "objective", spied)

    def run(data: Any, model: Path, **given: Any) -> Any:
        train(data, model, max_steps=1, verbose=True, **given)
        return list(kept), " ".join(capsys.readouterr().err.split())

    return run


def test_a_teachers_prompts_are_its_own_and_what_it_cuts_is_counted(
    tiny_model: Path, tmp_path: Path, taught: Callable[..., Any]
) -> None:
    given = {"query_prompt": "the ", "document_prompt": "a "}
    train(PAIRS, tiny_model, out=tmp_path / "teacher", max_steps=1, **given)
    pairs = [*PAIRS, ("red " * 20, "a cat " * 20)]

    found, told = taught(pairs, tiny_model, teacher=tmp_path / "teacher", unlabelled=["a dog"])

    queries, documents, alone = (
        Embedder(tmp_path / "teacher", normalize=True, prompt_name=name).embed(texts)
        for name, texts in (
            ("query", [a for a, _ in PAIRS]),
            ("document", [b for _, b in PAIRS]),
            ("document", ["a dog"]),
        )
    )
    np.testing.assert_allclose([each[0] for each in found[:16]], queries, atol=1e-6)
    np.testing.assert_allclose([each[1] for each in found[:16]], documents, atol=1e-6)
    np.testing.assert_allclose(found[-1], alone, atol=1e-6)
    assert "answered 18 examples once" in told
    assert "it read the first 16 tokens of 2 texts" in told


def test_a_student_learns_a_cross_encoders_scores(
    tiny_model: Path, pair_teacher: Path, tmp_path: Path, taught: Callable[..., Any]
) -> None:
    found, _ = taught(TRIPLETS, tiny_model, teacher=pair_teacher)
    judge = CrossEncoder.open(pair_teacher)
    pairs = [(a, other) for a, *others in TRIPLETS for other in others]
    scores = judge.scores(*map(list, zip(*pairs, strict=True)))
    np.testing.assert_allclose(np.concatenate(found)[:, 0], scores, rtol=1e-6)

    def correlation(**given: Any) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scored = [(*pair, float(score)) for pair, score in zip(pairs, scores, strict=True)]
            model = train(TRIPLETS, tiny_model, learning_rate=5e-3, dropout=0.0, **given)
            return float(tidybert.evaluate(model, scored)["pearson"])

    teacher: dict[str, Any] = {"teacher": pair_teacher, "teacher_weight": 1.0}
    after = correlation(num_train_epochs=12, unlabelled=PAIRS, **teacher)
    assert after > max(0.8, correlation(num_train_epochs=0) + 0.1)


def test_a_stopped_student_goes_on_to_the_same_bits_with_the_same_teacher_alone(
    tiny_model: Path, wide_teacher: Path, pair_teacher: Path, tmp_path: Path
) -> None:
    arguments = TrainingArguments(train_batch_size=8, tokens_per_batch=40, dropout=0.2)

    class Stopped(Exception):
        pass

    def stop(done: StepReport) -> None:
        if done.step == 6:
            raise Stopped

    def go(name: str, teacher: Path, *, resume: bool = False, **given: Any) -> bytes:
        settings: dict[str, Any] = {"teacher": teacher, "unlabelled": PAIRS[:7]}
        job = FinetuningJob(
            "embed", tiny_model, PAIRS, PAIRS, arguments, task_options=VectorOptions(),
            out=tmp_path / name, resume=resume,
            max_seq_length=16, **{**settings, **given.pop("job", {})},
        )  # fmt: skip
        run_finetuning(job, Reporter(**given))
        return (tmp_path / name / "model.safetensors").read_bytes()

    for name, teacher in (("vectors", wide_teacher), ("scores", pair_teacher)):
        whole = go(f"whole-{name}", teacher)
        with pytest.raises(Stopped):
            go(name, teacher, step=stop)
        for changed, message in (
            ({"teacher": tiny_model}, "the teacher: not the same as before"),
            ({"teacher_weight": 0.5}, "teacher_weight: 0.9 before, 0.5 now"),
        ):
            with pytest.raises(TrainingError, match=message):
                go(name, teacher, resume=True, job=changed)
        assert go(name, teacher, resume=True) == whole


def test_teachers_that_do_not_fit_are_refused(
    tiny_model: Path, pair_teacher: Path, served: dict[str, str]
) -> None:
    for data, given, error, message in (
        (PAIRS, {"teacher": served["colours"]}, UsageError, "colours was trained to classify with"),
        (PAIRS, {"teacher": served["scores"]}, UsageError, "regress on single inputs .text.: to"),
        (PAIRS, {"teacher": served["questions"]}, UsageError, "give a RUN of regress over pairs"),
        (PAIRS, {"teacher": "none-such"}, TidyBertError, "none-such"),
        (
            [(a, n % 2) for n, (a, _) in enumerate(PAIRS)],
            {"teacher": pair_teacher},
            DataError,
            "scores pairs of texts, and row 0 of train has a single text: give",
        ),
        (
            PAIRS,
            {"teacher": pair_teacher, "unlabelled": ["a red dog"]},
            DataError,
            "scores pairs of texts, and row 1 of unlabelled has a single text",
        ),
    ):
        with pytest.raises(error, match=message):
            train(data, tiny_model, **given)


def test_every_form_of_data_and_each_face_takes_a_teacher(
    tiny_model: Path, wide_teacher: Path, tmp_path: Path, capsys: Any
) -> None:
    labelled = [(a, n % 2) for n, (a, _) in enumerate(PAIRS)]
    scored = [(*pair, float(n % 3)) for n, pair in enumerate(PAIRS)]
    for data in (labelled, scored):
        train(data, tiny_model, teacher=wide_teacher, max_steps=2, unlabelled=["a dog"] * 3)

    out = tmp_path / "vectorizer"
    training = {**QUICK, "max_steps": 1, "out": out, "teacher": wide_teacher, "unlabelled": UNSEEN}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vectorizer = BertVectorizer(tiny_model, training=training).fit(PAIRS)
    expected = Embedder(out).embed(["a dog"])
    np.testing.assert_array_equal(vectorizer.transform(["a dog"]), expected)

    (tmp_path / "pairs.csv").write_text(
        "question,answer\n" + "".join(f"{a},{b}\n" for a, b in PAIRS)
    )
    (tmp_path / "more.txt").write_text("\n".join(UNSEEN))
    files = ["--train", str(tmp_path / "pairs.csv"), "--unlabelled", str(tmp_path / "more.txt")]
    command = ["finetune", "embed", str(tiny_model), *files, "--teacher", str(wide_teacher)]
    command += ["--max-seq-length", "16"]
    assert shell([*command, "--out", str(tmp_path / "run"), "--max-steps", "1"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "unlabelled: 5 examples for the teacher" in told
    assert f"the teacher {wide_teacher} answered 21 examples once" in told
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"It learned the answers of the teacher `{wide_teacher.name}` (2 layers) too." in card
