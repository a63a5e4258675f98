"""TextEstimator: the common part of the estimators whose X are texts or pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tidybert.data.long_texts import LongTexts
from tidybert.estimators import checked_inputs as inputs
from tidybert.estimators.base import Begun, BertEstimator
from tidybert.estimators.fit_notes import warn_of_truncation
from tidybert.files.text_examples import TextExample
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.regression import Regression
from tidybert.tasks.task_options import TextOptions
from tidybert.tasks.text_task import TextAnswers
from tidybert.training.python_spelling import as_in_python


@dataclass(eq=False, repr=False, kw_only=True)
class TextEstimator(BertEstimator):
    """Base of the estimators whose X are texts or pairs; see BertClassifier for the parameters."""

    long: Literal["truncate", "head-tail", "windows"] | None = "truncate"

    task_: Classification | MultiLabelClassification | Regression = field(init=False)

    def _read(self, X: Any) -> list[inputs.Text]:
        return inputs.read_texts(X)

    def _columns(self, X: Any, read: Sequence[Any]) -> dict[str, Any]:
        return {"n_features_in_": len(read[0]), "feature_names_in_": inputs.column_names(X)}

    def _texts(self, X: Any, begun: Begun | None = None) -> list[inputs.Text]:
        """Texts with as many columns, of the same names, as what is fitted or has ``begun``."""
        texts = inputs.read_texts(X)
        if begun is not None:
            width = 1 if begun.examples[0].text_pair is None else 2
            inputs.check_width(texts, width, "estimator")
            return texts
        check_is_fitted(self)
        expected = getattr(self, "n_features_in_", len(texts[0]))
        inputs.check_width(texts, expected, type(self).__name__)
        inputs.check_column_names(self, X)
        return texts

    def _long_texts(self) -> LongTexts:
        """The settings of ``long`` and ``doc_stride``; UsageError for unknown values."""
        with as_in_python():
            TextOptions(long=self.long, doc_stride=self.doc_stride)
            return LongTexts(self.long or "truncate", self.doc_stride)

    def _outputs(self, X: Any) -> npt.NDArray[np.float32]:
        """The model's outputs for each example, (n, C), in order."""
        texts = self._texts(X)
        answers = self._run([example_of(*each) for each in enumerate(texts)])
        truncated = {one.example: one.num_tokens for one in answers.features if one.truncated}
        mode = self.task_.long_texts.mode
        warn_of_truncation(self, [*truncated.values()], len(texts), self.max_seq_length_, mode)
        assert isinstance(answers, TextAnswers)
        return answers.logits

    def _restore(self, values: Mapping[str, Any]) -> None:
        self.long = cast(Any, self.task_.long_texts.mode)
        self.doc_stride = self.task_.long_texts.doc_stride


def example_of(
    place: int, text: inputs.Text, label: str | None = None, labels: tuple[str, ...] | None = None
) -> TextExample:
    """The example at a place of X, whose row is that place."""
    return TextExample(text[0], text[1] if len(text) == 2 else None, label, place, labels)
