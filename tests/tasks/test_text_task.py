"""Long texts in the tasks that read texts: windows in training, in answers, and in what is told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.fixed_outputs import dicts_of

from tidybert.cli import main as shell
from tidybert.data.batching import collate
from tidybert.data.long_texts import LongTexts
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.inference.predictor import Predictor
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.regression import Regression
from tidybert.tokenization import BertTokenizer

FILLER = ["the", "old", "and", "new", "a", "was", "is", "we", "saw", "under", "near", "and"]
WINDOWS = LongTexts("windows", 6)


def far_examples(count: int, seed: int) -> list[TextExample]:
    """What tells the class stands at the end of a text of 20 words."""
    random = np.random.default_rng(seed)
    examples = []
    for row in range(1, count + 1):
        words = list(random.choice(FILLER, 19))
        examples.append(
            TextExample(
                " ".join([*words, ("cat", "red")[row % 2]]),
                None,
                ("animal", "colour")[row % 2],
                row,
            )
        )
    return examples


@pytest.fixture
def trained(tiny_model: Path, toy_arguments: Callable[..., Any]) -> Callable[..., FinetunedModel]:
    def train(long_texts: LongTexts, run: Path | None = None) -> FinetunedModel:
        return run_finetuning(
            FinetuningJob(
                Classification(["animal", "colour"], long_texts=long_texts),
                tiny_model,
                far_examples(80, 0),
                far_examples(40, 1),
                toy_arguments(seed=1),
                max_seq_length=12,
                out=run,
            )
        )

    return train


@pytest.mark.parametrize(
    ("long_texts", "least", "most"),
    [(LongTexts(), 0.0, 0.75), (LongTexts("head-tail"), 0.95, 1.0), (WINDOWS, 0.9, 1.0)],
)
def test_what_stands_at_the_end_is_learned_where_it_is_read(
    long_texts: LongTexts, least: float, most: float, trained: Callable[..., FinetunedModel]
) -> None:
    assert least <= trained(long_texts).result.metrics["accuracy"] <= most


def test_a_run_remembers_how_it_reads_long_texts(
    trained: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    finished = trained(WINDOWS, tmp_path / "run")

    predictor = Predictor(tmp_path / "run")

    settings = json.loads((tmp_path / "run" / "tidybert.json").read_text())["settings"]
    assert (settings["long"], settings["doc_stride"]) == ("windows", 6)
    assert predictor.task.long_texts == WINDOWS
    dev = far_examples(40, 1)
    texts = [one.text for one in dev]
    answers = predictor.predict([*texts, "red"])
    right = [a["label"] == e.label for a, e in zip(answers, dev, strict=False)]
    assert np.mean(right) == finished.result.metrics["accuracy"]
    assert [answer["num_windows"] for answer in answers] == [3] * 40 + [1]
    assert [answer["truncated"] for answer in answers] == [False] * 41
    assert answers[0]["num_tokens"] == 22
    assert predictor.evaluate(dev)["num_truncated"] == 0


def test_an_estimator_reads_the_runs_texts_as_it_was_trained_to(
    trained: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    from tidybert import BertClassifier

    trained(WINDOWS, tmp_path / "run")
    texts = [one.text for one in far_examples(8, 2)]

    found = BertClassifier.load(tmp_path / "run").predict_proba(texts)

    answers = Predictor(tmp_path / "run").predict(texts)
    expected = [list(answer["scores"].values()) for answer in answers]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_answer_is_of_the_mean_of_its_windows_logits(tiny_run: Path, tiny_model: Path) -> None:
    predictor = Predictor(tiny_run)
    task = Classification(["animal", "colour"], long_texts=WINDOWS)
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    example = far_examples(1, 3)[0]
    ids = tokenizer.encode(example.text, add_special_tokens=False).input_ids
    parts = [tokenizer.decode(ids[start : start + 10]) for start in (0, 6, 12)]

    features = task.features([example], tokenizer, 12)
    outputs = run_features(task, predictor.model, features)

    apart = task.features([TextExample(part, None, None, 1) for part in parts], tokenizer, 12)
    logits = np.concatenate(run_features(task, predictor.model, apart))
    answers = task.answers(outputs, features, [example])
    np.testing.assert_allclose(answers.logits[0], logits.mean(0), atol=1e-6)
    (answer,) = dicts_of(answers)
    expected = torch.from_numpy(logits.mean(0)).softmax(0)
    assert list(answer["scores"].values()) == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("task", "label"),
    [
        (Classification(["x", "y"], {"x": 3.0, "y": 1.0}, long_texts=WINDOWS), {"label": "x"}),
        (Regression(WINDOWS), {"label": "2"}),
        (MultiLabelClassification(["x", "y"], long_texts=WINDOWS), {"labels": ("x",)}),
    ],
)
def test_the_windows_of_a_text_weigh_together_what_a_short_text_does(
    task: Any, label: dict[str, Any], tiny_model: Path, tiny_config: Callable[..., Any]
) -> None:
    torch.manual_seed(0)
    model = task.build_model(tiny_config()).eval()
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    text = far_examples(1, 0)[0].text
    examples = [TextExample(each, **{"text_pair": None, "label": None, "row": 1, **label})
                for each in (text, "the red hen")]  # fmt: skip

    features = task.features(examples, tokenizer, 12)
    task.add_labels(features, examples)

    assert [one.example for one in features] == [0, 0, 0, 1]
    long, short = features[:3], features[3]
    assert sum(one.weight for one in long) == pytest.approx(short.weight)
    assert short.weight == (3.0 if task.name == "classify" else 1.0)
    loss = task.loss(model, collate(long))
    for one in long:
        one.weight = short.weight
    whole = sum(task.loss(model, collate([one])) for one in long)
    torch.testing.assert_close(loss, whole / 3)
    # A judgement, a metric and a prediction are of an example, not of a window.
    outputs = run_features(task, model, features)
    assert len(task.answers(outputs, features, examples).predictions()) == 2
    assert len([*task.answers(outputs, features, examples).judgements()]) == 2
    assert len(task.answers(outputs, features, examples).metrics(np.array([0, 1, 1]))) > 0
    if task.name != "regress":
        assert task.answers(outputs, features, examples).metrics()


def test_through_the_shell(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = tmp_path / "train.csv", tmp_path / "run"
    rows = [f"{one.text},{one.label}" for one in far_examples(40, 0)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    flags = ["--train", str(path), "--dev", str(path), "--max-seq-length", "12"]
    flags += ["--max-steps", "1", "--out", str(run)]

    windows = ["--long", "windows", "--doc-stride", "5"]
    assert shell.run(["finetune", "classify", str(tiny_model), *flags, *windows]) == 0
    told = capsys.readouterr().err
    assert "read in windows: 40 of 40 train, in 120 windows, 3 at most" in told
    assert "read in windows: 40 of 40 dev, in 120 windows, 3 at most" in told
    assert "lose a part" not in told

    assert shell.run(["predict", str(run), str(path)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out.splitlines()[0])["num_windows"] == 3
    assert "were cut" not in captured.err

    assert shell.run(["finetune", "classify", str(tiny_model), *flags, "--doc-stride", "5"]) == 2
    other = ["--out", str(tmp_path / "other"), "--doc-stride", "5"]
    assert shell.run(["finetune", "classify", str(tiny_model), *flags, *other]) == 2
    assert "--doc-stride 5 has no meaning without --long windows" in capsys.readouterr().err
    head_tail = ["--out", str(tmp_path / "third"), "--long", "head-tail"]
    assert shell.run(["finetune", "classify", str(tiny_model), *flags, *head_tail]) == 0
    told = capsys.readouterr().err
    assert "cut in the middle: 40 of 40 train" in told
