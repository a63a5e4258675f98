"""Predictor: load a finished RUN once, then answer texts in batches, in the order given."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidybert.configuration import BertConfig
from tidybert.data.examples import TextExample
from tidybert.errors import DataError, UsageError
from tidybert.inference.loading import choose_device, load_finished
from tidybert.inference.running import run_features

# A stream's first answers come at once; its chunks then grow to where sorting by length pays.
_FIRST_CHUNK, _LARGEST_CHUNK = 1, 1024


class Predictor:
    """A fine-tuned model that answers.

    Args:
        run: a RUN, or a directory with a sequence classifier that transformers saved.
        device: auto, cpu, cuda or cuda:N.
        max_seq_length: tokens a text is cut to; None for what the model was trained with.
        allow_pickle: read a pickle's weights where there is no safetensors file.

    Raises ModelNotFoundError, ConfigError, VocabularyError, WeightsError or UsageError.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        device: str = "auto",
        max_seq_length: int | None = None,
        allow_pickle: bool = False,
    ) -> None:
        self.task, self.model, self.tokenizer, self.metadata = load_finished(
            run, allow_pickle=allow_pickle
        )
        self.model.to(choose_device(device))
        config = self.model.config
        assert isinstance(config, BertConfig)
        limit = config.max_position_embeddings
        if max_seq_length is not None and max_seq_length > limit:
            raise UsageError(
                f"--max-seq-length is {max_seq_length}, but the model has positions for {limit} "
                "tokens"
            )
        self.max_seq_length = max_seq_length or self.metadata.max_seq_length

    def predict(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """One answer a text, in order: see ``predict_stream``."""
        if isinstance(texts, str) or isinstance(text_pairs, str):
            raise DataError("one string was given; expected a list of texts: wrap it in [...]")
        pairs: Sequence[str | None] = [None] * len(texts) if text_pairs is None else text_pairs
        if len(pairs) != len(texts):
            raise DataError(f"there are {len(texts)} texts and {len(pairs)} second texts")
        examples = [
            TextExample(text, pair, None, row)
            for row, (text, pair) in enumerate(zip(texts, pairs, strict=True), start=1)
        ]
        return list(self._answers(examples)) if examples else []

    def predict_stream(self, examples: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        """Answers in the order of the examples, in constant memory.

        Each is {"label", "score", "scores"} or {"value"}, with "num_tokens" (before truncation) and
        "truncated".
        """
        chunk: list[TextExample] = []
        size = _FIRST_CHUNK
        for example in examples:
            chunk.append(example)
            if len(chunk) == size:
                yield from self._answers(chunk)
                chunk, size = [], min(2 * size, _LARGEST_CHUNK)
        if chunk:
            yield from self._answers(chunk)

    def evaluate(self, examples: Sequence[TextExample]) -> dict[str, Any]:
        """The task's metrics on labelled examples, with num_examples and num_truncated.

        Raises DataError for a label that the model does not know, or no examples.
        """
        if not examples:
            raise DataError("there are no examples to evaluate on")
        features = self.task.features(examples, self.tokenizer, self.max_seq_length)
        self.task.add_labels(features, examples)
        outputs = run_features(self.task, self.model, features)
        return {
            **self.task.metrics(outputs, features),
            "num_examples": len(features),
            "num_truncated": sum(one.truncated for one in features),
        }

    def _answers(self, examples: Sequence[TextExample]) -> Iterator[dict[str, Any]]:
        features = self.task.features(examples, self.tokenizer, self.max_seq_length)
        outputs = run_features(self.task, self.model, features)
        assert np.isfinite(outputs).all(), "the model's weights are finite but its outputs are not"
        for answer, one in zip(self.task.predictions(outputs), features, strict=True):
            yield {**answer, "num_tokens": one.num_tokens, "truncated": one.truncated}
