"""TextEstimator: the common part of the estimators of texts and pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tidybert.data.long_texts import LongTexts
from tidybert.errors import DataError
from tidybert.estimators.base import BertEstimator
from tidybert.estimators.checked_inputs import Text, check_width, read_texts, read_weights
from tidybert.estimators.messages import as_in_python, warn_of_truncation
from tidybert.files.text_examples import TextExample
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.regression import Regression
from tidybert.tasks.task import AnyTask
from tidybert.tasks.task_options import TextOptions
from tidybert.tasks.text_task import TextAnswers


@dataclass(eq=False, repr=False, kw_only=True)
class TextEstimator(BertEstimator):
    """Base of the estimators whose X are texts or pairs; see BertClassifier for the parameters."""

    long: str = "truncate"

    task_: Classification | MultiLabelClassification | Regression = field(init=False)

    def _read(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[list[Text], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The texts, the places of those with a weight above 0, and the weights of these.

        Only checks that y is not None.
        """
        texts = read_texts(X)
        if y is None:
            raise DataError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        weights = read_weights(sample_weight, len(texts))
        kept = np.flatnonzero(weights)
        return texts, kept, weights[kept]

    def _finetune(
        self, task: AnyTask, examples: Sequence[TextExample], weights: npt.NDArray[np.float64]
    ) -> Self:
        """Train on texts, and set the fitted attributes."""
        self._train(task, examples, weights)
        self.n_features_in_ = 1 if examples[0].text_pair is None else 2
        return self

    def _long_texts(self) -> LongTexts:
        """The settings of ``long`` and ``doc_stride``; UsageError for unknown values."""
        with as_in_python():
            options = TextOptions(long=self.long, doc_stride=self.doc_stride)
            return LongTexts(options.long or "truncate", options.doc_stride)

    def _outputs(self, X: Any) -> npt.NDArray[np.float32]:
        """The model's outputs for each example, (n, C), in order."""
        check_is_fitted(self)
        texts = read_texts(X)
        expected = getattr(self, "n_features_in_", len(texts[0]))
        check_width(texts, expected, type(self).__name__)
        answers = self._run([example_of(*each) for each in enumerate(texts)])
        truncated = {one.example: one.num_tokens for one in answers.features if one.truncated}
        mode = self.task_.long_texts.mode
        warn_of_truncation([*truncated.values()], len(texts), self.max_seq_length_, mode)
        assert isinstance(answers, TextAnswers)
        return answers.logits

    def _restore(self, stored: dict[str, Any]) -> None:
        self.long = self.task_.long_texts.mode
        self.doc_stride = self.task_.long_texts.doc_stride


def example_of(
    place: int, text: Text, label: str | None = None, labels: tuple[str, ...] | None = None
) -> TextExample:
    """The example at a place of X, whose row is that place."""
    return TextExample(text[0], text[1] if len(text) == 2 else None, label, place, labels)
