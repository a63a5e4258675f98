"""What a type checker knows of Python's entrance; check_types.py checks it, and nothing runs it."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np

import tidybert
from tidybert import BertClassifier, Embedder, FinetunedModel, Predictor
from tidybert.inference.predictor import AnswerList
from tidybert.tasks.answer_types import (
    ChoiceAnswer,
    ChoiceMetrics,
    ClassAnswer,
    ClassMetrics,
    LabelSetAnswer,
    LabelSetMetrics,
    ScoreAnswer,
    ScoreMetrics,
    SpanAnswer,
    SpanMetrics,
    TagAnswer,
    TagMetrics,
)


def each_task(data: list[tuple[str, str]], path: Path) -> None:
    classes = tidybert.finetune(data, out=path, learning_rate=3e-5)
    assert_type(classes, FinetunedModel[ClassAnswer])
    assert_type(tidybert.evaluate(classes, data), ClassMetrics)
    sets = tidybert.finetune(data, multi_label=True, long="windows")
    assert_type(sets, FinetunedModel[LabelSetAnswer])
    assert_type(tidybert.evaluate(sets, data), LabelSetMetrics)
    scores = tidybert.finetune(data, "regress", dev=0.2)
    assert_type(scores, FinetunedModel[ScoreAnswer])
    assert_type(tidybert.evaluate(scores, data)["mse"], float)
    assert_type(tidybert.evaluate(scores, data, resamples=10), ScoreMetrics)
    choices = tidybert.finetune(data, "choose", scores)
    assert_type(choices, FinetunedModel[ChoiceAnswer])
    assert_type(tidybert.evaluate(choices.predictor, data), ChoiceMetrics)
    spans = tidybert.finetune(data, task="answer", verbose=True)
    assert_type(spans, FinetunedModel[SpanAnswer])
    assert_type(tidybert.evaluate(spans, data, report=path), SpanMetrics)
    tags = tidybert.finetune(data, "tag")
    assert_type(tags, FinetunedModel[TagAnswer])
    assert_type(tidybert.evaluate(tags, data), TagMetrics)


def answers(data: list[str], path: Path) -> None:
    model = tidybert.finetune(data)
    assert_type(model.predict("a text"), ClassAnswer)
    assert_type(model.predict(data), AnswerList[ClassAnswer])
    assert_type(Predictor(path).predict("a text"), dict[str, Any])
    assert_type(tidybert.evaluate(path, data), dict[str, Any])
    typed = Predictor[TagAnswer](path, precision="float32")
    assert_type(typed.predict(data)[0]["tags"], list[str])
    assert_type(Embedder("minilm").embed(data).shape, tuple[Any, ...])
    assert_type(BertClassifier().fit(data, np.zeros(2)), BertClassifier)


def mistakes(data: list[str]) -> None:
    tidybert.finetune(data, long="windoes")  # type: ignore[call-overload]
    tidybert.finetune(data, "clasify")  # type: ignore[call-overload]
    scores = tidybert.finetune(data, "regress")
    tidybert.evaluate(scores, data)["accuracy"]  # type: ignore[typeddict-item]
    scores.predict("a text")["label"]  # type: ignore[typeddict-item]
    Embedder("minilm", pooling="average")  # type: ignore[arg-type]
