"""Students that learn a teacher's vectors through a Dense, and search its index."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.finetuning.test_vector_teacher import PAIRS, UNSEEN, train, wide_teacher

import tidybert
from tidybert.errors import DataError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.search.index import Index
from tidybert.search.index_files import write_index

__all__ = ["wide_teacher"]
TEXTS = [text for pair in PAIRS for text in pair] + ["a red old cat", "near a black dog", "we saw"]
QUICKLY: dict[str, Any] = {"learning_rate": 5e-3, "dropout": 0.0, "num_train_epochs": 12}


@pytest.fixture(scope="module")
def student(tiny_model: Path, wide_teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("students") / "narrow"
    train(TEXTS, tiny_model, teacher=wide_teacher, out=out, **QUICKLY)
    return out


@pytest.fixture
def index(wide_teacher: Path, tmp_path: Path) -> Path:
    examples = [TextExample(text, None, None, row) for row, text in enumerate(TEXTS, 1)]
    embedder = Embedder(wide_teacher, normalize=True)
    write_index(embedder, examples, tmp_path / "index", model=str(wide_teacher))
    return tmp_path / "index"


def test_a_narrower_student_searches_its_teachers_index(
    student: Path, wide_teacher: Path, index: Path
) -> None:
    ours, theirs = Embedder(student).embed(UNSEEN), Embedder(wide_teacher, normalize=True)

    hits = Index.open(index, student).search(TEXTS[5], 3, by="meaning")

    assert (ours * theirs.embed(UNSEEN)).sum(1).mean() > 0.9
    cosines = theirs.embed(TEXTS) @ Embedder(student).embed([TEXTS[5]])[0]
    assert [hit.score for hit in hits] == pytest.approx(np.sort(cosines)[:-4:-1], abs=1e-5)
    settings = json.loads((student / "tidybert.json").read_text())["settings"]
    assert settings["teacher"] == theirs.fingerprint
    assert tidybert.Predictor(student).predict(UNSEEN[0])["vector"] == pytest.approx(
        ours[0].tolist(), abs=0.3
    )


def test_sentence_transformers_gives_a_students_vectors(student: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = sentence_transformers.SentenceTransformer(str(student), device="cpu")

    assert np.allclose(other.encode(UNSEEN), Embedder(student).embed(UNSEEN), atol=1e-5)


def test_a_student_of_equal_width_may_begin_with_its_own_vectors(
    tiny_model: Path, tmp_path: Path
) -> None:
    """From a file of texts."""
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS))
    out = tmp_path / "student"

    given = {"num_train_epochs": 0, "head_start": "random"}
    train(file, tiny_model, teacher=tiny_model, out=out, **given)

    same = Embedder(tiny_model, normalize=True).embed(UNSEEN)
    assert np.allclose(Embedder(out).embed(UNSEEN), same, atol=1e-6)
    assert (out / "2_Dense" / "model.safetensors").is_file()
    # Nothing was fitted before the first step.
    assert not (out / "metrics.jsonl").exists()


@pytest.mark.parametrize("teacher", ["tiny_model", "wide_teacher"])
def test_a_dense_begins_as_a_ridge_regression_to_the_teachers_vectors(
    teacher: str, tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(teacher)
    given = {"teacher": path, "num_train_epochs": 0, "dropout": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        # Without a penalty the regression is NumPy's.
        patch.setattr("tidybert.finetuning.head_start._PENALTY", 0.0)
        train(TEXTS, tiny_model, out=tmp_path / "fitted", **given)
    train(TEXTS, tiny_model, out=tmp_path / "shrunk", **given)

    vectors = Embedder(tiny_model, pooling="mean").embed(TEXTS).astype(np.float64)
    wanted = Embedder(path, normalize=True).embed(TEXTS)
    inputs = np.column_stack([vectors, np.ones(len(vectors))])
    expected = inputs @ np.linalg.lstsq(inputs, wanted, rcond=None)[0]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = {name: Embedder(tmp_path / name).embed(TEXTS) for name in ("fitted", "shrunk")}
    assert np.allclose(found["fitted"], expected, atol=0.01)
    near = {name: float((each * wanted).sum(1).mean()) for name, each in found.items()}
    assert 0.5 < near["shrunk"] < near["fitted"]


def test_a_student_learns_further_with_its_dense_and_leaves_the_index(
    student: Path, index: Path, tmp_path: Path
) -> None:
    trained = train(PAIRS, student, learning_rate=5e-3, max_steps=4, out=tmp_path / "pairs")

    before, after = (Embedder(each).embed(UNSEEN) for each in (student, tmp_path / "pairs"))
    assert after.shape == before.shape == (len(UNSEEN), 32)
    assert np.abs(after - before).max() > 1e-3
    with pytest.raises(UsageError, match="made by other weights or another vocabulary"):
        Index.open(index, tmp_path / "pairs")
    # In memory too, and heads of other tasks do without it.
    again = train(PAIRS, trained, max_steps=1, out=tmp_path / "again")
    assert Embedder(tmp_path / "again").dimension == 32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tidybert.finetune(
            ([text for text, _ in PAIRS], ["a", "b"] * 8),
            "classify",
            again,
            dev=0,
            max_steps=1,
            max_seq_length=16,
        )
    assert found.predict("the red dog")["label"] in ("a", "b")


def test_a_stopped_student_ends_with_the_same_bits(
    tiny_model: Path, wide_teacher: Path, tmp_path: Path
) -> None:
    given = {"teacher": wide_teacher, "max_steps": 4, "save_steps": 2, "keep_checkpoints": True}
    whole, other = tmp_path / "whole", tmp_path / "other"
    train(TEXTS, tiny_model, out=whole, **given)
    shutil.copytree(whole, other)
    for name in ("tidybert.json", "model.safetensors"):
        (other / name).unlink()
    shutil.rmtree(other / "checkpoints" / "step-4")

    train(TEXTS, tiny_model, out=other, resume=True, **given)

    for name in ("model.safetensors", "2_Dense/model.safetensors"):
        assert (other / name).read_bytes() == (whole / name).read_bytes()


def test_what_texts_alone_cannot_do_is_said(
    tiny_model: Path, wide_teacher: Path, index: Path
) -> None:
    with pytest.raises(DataError, match=r"one text without a label; .*, or teacher, whose vectors"):
        train(TEXTS, tiny_model)
    with pytest.raises(UsageError, match=r"dev_fraction=0.2: texts alone say nothing to measure"):
        train(TEXTS, tiny_model, teacher=wide_teacher, dev=None, dev_fraction=0.2)
    scored = [(*pair, 0.5) for pair in PAIRS]
    with pytest.raises(DataError, match=r"are texts alone, and the dev examples are .*with scores"):
        train(TEXTS, tiny_model, teacher=wide_teacher, dev=scored)
    with pytest.raises(UsageError, match=r"'infonce' learns from pairs.* these are texts alone"):
        train(TEXTS, tiny_model, teacher=wide_teacher, loss="infonce")
    with pytest.raises(
        UsageError, match=r"32 numbers, and the model gives 16: .* Dense gives 32: "
    ):
        Index.open(index, tiny_model)


def test_pairs_measure_a_student(tiny_model: Path, wide_teacher: Path) -> None:
    found = train(TEXTS, tiny_model, teacher=wide_teacher, dev=PAIRS, max_steps=1)

    assert 0 < found.metrics["ndcg_at_10"] <= 1
