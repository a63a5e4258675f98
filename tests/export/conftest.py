"""MODELs with one layer and every kind of head, and their exports, each made once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.sentence_directories import write_sentence_transformers

from tidybert.checkpoints.activations import SIGMOID
from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.configuration import BertConfig
from tidybert.export.onnx_export import Exported, export_onnx
from tidybert.modeling import heads
from tidybert.modeling.bert import BertModel
from tidybert.tasks.classification import Classification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tokenization import BertTokenizer

TASKS = {
    "classify": Classification(["no", "maybe", "yes"], temperature=1.7),
    "choose": MultipleChoice(),
    "answer": QuestionAnswering(max_query_length=6),
    "tag": Tagging(["O", "B-X", "I-X"]),
    "regress": Regression(activation=SIGMOID),
    "embed": SentenceVectors(query_prompt="the ", document_prompt="a ", normalize=True),
}
INT8 = ("classify", "tag", "answer", "embed")
FORM = SentenceForm(
    dense=(Dense(torch.eye(16)[:12] * 2, torch.ones(12), "torch.nn.modules.activation.Tanh"),),
    normalize=True,
    prompts={"query": "the "},
    max_seq_length=11,
)


@pytest.fixture(scope="session")
def made(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
) -> Callable[[str], tuple[ModelDirectory, Any]]:
    """The directory and the model of a name: a task, pre-training or embedding."""
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    config = tiny_config(num_hidden_layers=1)

    def make(name: str) -> tuple[ModelDirectory, Any]:
        path = tmp_path_factory.mktemp("models") / name
        torch.manual_seed(7)
        if name == "embedding":
            model: Any = BertModel(config)
            write_sentence_transformers(path, model, tokenizer, FORM)
            return ModelDirectory(path), model.eval()
        task = TASKS.get(name)
        # The mean of the states; NextSentence has the pooler.
        own = config.with_pooling("mean") if name == "classify" else config
        model = heads.BertForPreTraining(own) if task is None else task.build_model(own)
        save_model_directory(
            path,
            model_state=model.state_dict(),
            config=own,
            tokenizer=tokenizer,
            metadata=ModelMetadata("pretrain", None, 16)
            if task is None
            else ModelMetadata(task.name, task.label_names, 16, settings=task.settings()),
            architecture=type(model).__name__,
            problem_type=None if task is None else task.problem_type,
            sentence=None if task is None else task.sentence_form(16),
        )
        return ModelDirectory(path), model.eval()

    return make


@pytest.fixture(scope="session")
def exported(
    made: Callable[[str], tuple[ModelDirectory, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Any, Exported]]:
    """The model of a name, and its export; those of INT8 have int8 too."""
    kept: dict[str, tuple[Any, Exported]] = {}

    def export(name: str) -> tuple[Any, Exported]:
        if name not in kept:
            directory, model = made(name)
            out = tmp_path_factory.mktemp("exports") / name
            kept[name] = model, export_onnx(directory, out, int8=name in INT8)
        return kept[name]

    return export
