"""A directory of ONNX graphs answers as the model that it was converted from, and without PyTorch."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from tests.sentence_directories import write_sentence_transformers

from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.example_kinds import PAIR
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.sentence_form import SIGMOID, SentenceForm
from tidybert.configuration import BertConfig
from tidybert.data.long_texts import LongTexts
from tidybert.errors import UsageError, WeightsError
from tidybert.export.onnx_export import export_onnx
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor
from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor
from tidybert.inference.zero_shot import NamePredictor
from tidybert.modeling.bert import BertModel
from tidybert.modeling.heads import BertForPreTraining
from tidybert.tasks.choices.multiple_choice import MultipleChoice
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tokenization import BertTokenizer

TEXTS = ["the red cat", "a dog", "we saw the old hen near a new blue cow under the white dog", "cat"]
WINDOWS = LongTexts("windows", 3)
TASKS: dict[str, Any] = {
    "classify": Classification(["no", "maybe", "yes"], temperature=1.7, min_score=0.4),
    "windows": Classification(["no", "yes"], long_texts=WINDOWS),
    "sets": MultiLabelClassification(["a", "b"], {"a": 0.2}, temperature=0.7),
    "regress": Regression(activation=SIGMOID),
    "choose": MultipleChoice(temperature=1.3),
    "answer": QuestionAnswering(max_query_length=6, doc_stride=4, no_answers=True),
    "tag": Tagging(["O", "B-X", "I-X"], temperature=0.5, doc_stride=3),
    "embed": SentenceVectors(pooling="mean", query_prompt="the ", normalize=True),
}
SECONDS: dict[str, Any] = {
    "regress": TEXTS[::-1],
    "choose": [["a dog", "the cow", "hen"], ["cat", "a white dog"], ["we saw", "the"], ["a", "b"]],
    "answer": [TEXTS[2]] * 4,
}
FORM = SentenceForm(
    dense=(Dense(torch.eye(16)[:12] * 2, torch.ones(12), "torch.nn.modules.activation.Tanh"),),
    normalize=True,
    prompts={"query": "the "},
    max_seq_length=11,
)
HEADS = [*TASKS, "pretraining", "encoder", "dense"]

Both = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
) -> Both:
    """The directory of a head, and that of its graphs."""
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    kept: dict[str, tuple[Path, Path]] = {}

    def make(name: str) -> tuple[Path, Path]:
        if name in kept:
            return kept[name]
        folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(3)
        config = tiny_config(num_hidden_layers=1)
        task = TASKS.get(name)
        if name in ("encoder", "dense"):
            form = FORM if name == "dense" else SentenceForm()
            encoder = BertModel(config)
            write_sentence_transformers(folder / "model", encoder, tokenizer, form)
        else:
            model = BertForPreTraining(config) if task is None else task.build_model(config)
            for each in model.parameters():
                torch.nn.init.normal_(each, std=0.3)
            save_model_directory(
                folder / "model",
                model_state=model.state_dict(),
                config=config,
                tokenizer=tokenizer,
                metadata=ModelMetadata("pretrain", None, 16)
                if task is None
                else ModelMetadata(
                    task.name,
                    task.label_names,
                    16,
                    PAIR if name == "regress" else task.inputs if name != "classify" else None,
                    settings=task.settings(),
                ),
                architecture="BertForPreTraining" if task is None else task.architecture,
                problem_type=None if task is None else task.problem_type,
                sentence=None if task is None else task.sentence_form(16),
            )
        export_onnx(ModelDirectory(folder / "model"), folder / "graph", int8=name == "classify")
        kept[name] = folder / "model", folder / "graph"
        return kept[name]

    return make


def answers(name: str, model: Path, **options: Any) -> list[Any]:
    """What the head says of TEXTS, as JSON would have it."""
    if name in TASKS:
        return list(Predictor(model, **options).predict(TEXTS, SECONDS.get(name)))
    if name == "pretraining":
        masked = [f"{text} [MASK] the [MASK]" for text in TEXTS]
        filled = MaskFiller(model, **options).fill(masked)
        followed = NextSentencePredictor(model, **options).predict(TEXTS, TEXTS[::-1])
        return [*filled, *followed]
    return [*Embedder(model, **options).embed(TEXTS).tolist()]


@pytest.mark.filterwarnings("ignore::tidybert.errors.DataWarning")
@pytest.mark.parametrize("name", HEADS)
def test_answers_are_those_of_the_weights(name: str, both: Both) -> None:
    model, graph = both(name)

    assert_same(answers(name, graph), answers(name, model))


def assert_same(found: Any, expected: Any) -> None:
    """Equal keys, texts and whole numbers, and numbers within 1e-5."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = [*found.values()], [*expected.values()]
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert_same(ours, theirs)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-5)
    else:
        assert found == expected
