"""Next sentence prediction: does B follow A in a text? (paper 3.1, task 2)"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.data.features import Features, text_features
from tidybert.errors import DataError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.answer_precision import AnswerPrecision, prepare_precision
from tidybert.inference.forward import in_chunks, run_batches
from tidybert.inference.loading import check_texts, fitting_length, load_with_head, to_device
from tidybert.inference.notebooks import ShowsPretraining
from tidybert.modeling.heads import BertForNextSentencePrediction


class NextSentencePredictor(ShowsPretraining):
    """A pre-trained model that says whether a sentence follows another.

    Args:
        model: a MODEL with a next-sentence head.
        max_seq_length: longest pair in tokens, the longer text is cut first; None: all the model's
            positions.
        device: auto, cpu, cuda or cuda:N.
        precision: float32 (on CUDA with TF32 products), bfloat16, float16 on CUDA, or int8 on a
            CPU; auto is bfloat16 on CUDA if the model was trained in it, and float32 elsewhere.
        allow_pickle: read weights from a pickle if there is no safetensors file.

    Raises what ``load`` raises, WeightsError if the weights lack the head, and UsageError.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        max_seq_length: int | None = None,
        device: str = "auto",
        precision: AnswerPrecision = "auto",
        allow_pickle: bool = False,
    ) -> None:
        self.model, self.tokenizer = load_with_head(
            BertForNextSentencePrediction,
            model,
            head="next-sentence head",
            allow_pickle=allow_pickle,
        )
        self.device = to_device(self.model, device)
        self.precision = prepare_precision(precision, self.model, model, self.device)
        self.max_seq_length = fitting_length(self.model.config, max_seq_length)
        self._note(model, self.model.config)

    def predict(self, texts: Sequence[str], next_texts: Sequence[str]) -> list[dict[str, Any]]:
        """One answer a pair, in order: {"follows", "num_tokens", "truncated"}.

        "follows" is the probability that the second text follows the first (next_sentence_label 0);
        "num_tokens" counts the pair's tokens before truncation.
        """
        check_texts(texts, next_texts)
        features = text_features(self.tokenizer, texts, next_texts, self.max_seq_length)
        found = run_batches(
            self.outputs, features, [1] * len(features), self.device, precision=self.precision
        )
        return [self.answer(one, each) for one, each in zip(features, found, strict=True)]

    def outputs(self, batch: Batch) -> Tensor:
        """(B, 2): the probabilities that the second text follows, and that it does not."""
        logits: Tensor = self.model(batch.rows)
        return logits.float().softmax(-1)

    def answer(self, one: Features, row: npt.NDArray[np.float32]) -> dict[str, Any]:
        """What ``predict`` gives for a pair, from its row (1, 2) of ``outputs``."""
        follows = float(row[0, 0])
        return {"follows": follows, "num_tokens": one.num_tokens, "truncated": one.truncated}

    def predict_stream(self, examples: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        """Answers for pairs, in order and in constant memory; DataError for a single text."""
        for chunk in in_chunks(examples):
            pairs = [one.text_pair for one in chunk if one.text_pair is not None]
            if len(pairs) < len(chunk):
                raise DataError(
                    "the file has single texts, not pairs: name the column of the second sentence "
                    f"with {param('text_pair')}"
                )
            yield from self.predict([one.text for one in chunk], pairs)
