"""Special tokens that texts spell: a RUN keeps the way that it was trained."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import tidybert
from tidybert.cli.main import run as shell
from tidybert.estimators import BertVectorizer
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import OpenedModel
from tidybert.inference.predictor import Predictor
from tidybert.tasks.questions.question_features import question_features
from tidybert.tasks.questions.question_files import QuestionExample

transformers = pytest.importorskip("transformers")

TEXT = "red [SEP] cat [MASK]"
WAY = "special_tokens_in_text"


@pytest.fixture
def old_run(tiny_run: Path, tmp_path: Path) -> Path:
    run = Path(shutil.copytree(tiny_run, tmp_path / "old"))
    described = json.loads((run / "tidybert.json").read_text())
    assert described.pop(WAY) is True
    (run / "tidybert.json").write_text(json.dumps(described))
    return run


def ids_of(run: Path, text: str = TEXT) -> list[int]:
    predictor = Predictor(run, device="cpu")
    examples = predictor.task.from_texts([text], None)
    (one,) = predictor.task.features(examples, predictor.tokenizer, predictor.max_seq_length)
    found: list[int] = one.input_ids.tolist()
    return found


def test_predict_reads_what_transformers_and_tokenize_read(
    tiny_run: Path, old_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(tiny_run)
    assert ids_of(tiny_run) == theirs(TEXT)["input_ids"]
    assert len(ids_of(tiny_run)) == 6
    assert len(ids_of(old_run)) == 10
    for run in (tiny_run, old_run):
        capsys.readouterr()
        assert shell(["tokenize", str(run), TEXT, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["tokens"]
        assert [each["id"] for each in shown] == ids_of(run)
    assert ids_of(old_run, "a red cat") == ids_of(tiny_run, "a red cat")


def test_a_training_begins_anew_and_what_is_copied_keeps_the_way(
    tiny_run: Path, old_run: Path, tmp_path: Path
) -> None:
    texts, labels = ["red", "blue", "cat", "dog"] * 5, ["colour", "colour", "animal", "animal"] * 5
    again = tidybert.finetune(
        texts,
        labels,
        model=str(old_run),
        dev_fraction=0,
        max_steps=1,
        max_seq_length=16,
        device="cpu",
    )
    assert again.tokenizer.special_tokens_in_text
    for run, way in ((tiny_run, True), (old_run, False)):
        finished = tidybert.FinetunedModel.of_run(run)
        finished.save(tmp_path / f"{run.name} again")
        written = json.loads((tmp_path / f"{run.name} again" / "tidybert.json").read_text())
        assert written.get(WAY, False) is way
        assert pickle.loads(pickle.dumps(finished.tokenizer)).special_tokens_in_text is way


def test_a_vectorizer_of_an_older_version_keeps_its_vectors(tiny_model: Path) -> None:
    fitted = BertVectorizer(str(tiny_model), device="cpu").fit([TEXT])
    plain = Embedder.of(OpenedModel(tiny_model, device="cpu", plain_texts=True))
    assert fitted.fingerprint_ != plain.fingerprint
    expected = {
        fitted.fingerprint_: fitted.transform([TEXT]),
        plain.fingerprint: plain.embed([TEXT]),
    }
    for fingerprint, vectors in expected.items():
        fitted.fingerprint_ = fingerprint
        opened = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_allclose(opened.transform([TEXT]), vectors, atol=1e-6)


def test_an_answer_is_found_after_a_special_token(tiny_model: Path) -> None:
    context = "red [SEP] cat"
    example = QuestionExample("1", "a [MASK]", context, (("cat", 10),))
    tokenizer = OpenedModel(tiny_model, device="cpu").tokenizer
    (one,) = question_features([example], tokenizer, 20, 8, None)
    theirs = transformers.AutoTokenizer.from_pretrained(tiny_model)
    assert one.input_ids.tolist() == theirs("a [MASK]", context)["input_ids"]
    assert one.place.tokens.covering(10, 13) == (2, 2)
