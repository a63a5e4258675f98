"""Next sentence prediction: does B follow A in a text? (paper 3.1, task 2)"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.data.features import Features, text_features
from tidybert.errors import DataError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import in_chunks, run_batches
from tidybert.inference.loading import load_with_head, to_device
from tidybert.inference.text_inputs import check_texts, fitting_length
from tidybert.modeling.heads import BertForNextSentencePrediction


class NextSentencePredictor:
    """A pre-trained model that tells whether a sentence follows another.

    Args:
        model: a MODEL with a next-sentence head.
        max_seq_length: tokens a pair is cut to, its longer side first; None for as many as the
            model has positions for.
        device: auto, cpu, cuda or cuda:N.
        allow_pickle: read a pickle's weights where there is no safetensors file.

    Raises what ``load`` raises, WeightsError where the weights have no such head, and UsageError.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        max_seq_length: int | None = None,
        device: str = "auto",
        allow_pickle: bool = False,
    ) -> None:
        self.model, self.tokenizer = load_with_head(
            BertForNextSentencePrediction,
            model,
            head="next-sentence head",
            allow_pickle=allow_pickle,
        )
        self.device = to_device(self.model, device)
        self.max_seq_length = fitting_length(self.model.config, max_seq_length)

    def predict(self, texts: Sequence[str], next_texts: Sequence[str]) -> list[dict[str, Any]]:
        """One answer a pair, in order.

        Each is {"follows", "num_tokens", "truncated"}: the probability that the second text follows
        the first (next_sentence_label 0), and how many tokens there were before truncation.
        """
        check_texts(texts, next_texts)
        features = text_features(self.tokenizer, texts, next_texts, self.max_seq_length)
        return self._answers(features)

    def predict_stream(self, examples: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        """Answers in the order of the examples, which are pairs, in constant memory.

        Raises DataError for a single text.
        """
        for chunk in in_chunks(examples):
            pairs = [one.text_pair for one in chunk if one.text_pair is not None]
            if len(pairs) < len(chunk):
                raise DataError(
                    "the file has single texts, and a pair is expected: name the column of the "
                    f"sentence that may follow with {param('text_pair')}"
                )
            yield from self.predict([one.text for one in chunk], pairs)

    def _answers(self, features: Sequence[Features]) -> list[dict[str, Any]]:
        def outputs(batch: Batch) -> Tensor:
            logits: Tensor = self.model(batch.rows)
            return logits.float().softmax(-1)

        found = run_batches(outputs, features, [1] * len(features), self.device)
        return [
            {
                "follows": float(each[0, 0]),
                "num_tokens": one.num_tokens,
                "truncated": one.truncated,
            }
            for one, each in zip(features, found, strict=True)
        ]
