"""BertClassifier: labels of texts and of pairs behind scikit-learn's interface."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from tidybert.data.long_texts import LongTexts
from tidybert.errors import DataError, UsageError
from tidybert.estimators import checked_inputs as inputs
from tidybert.estimators.base import Begun, BertEstimator, warn_of_truncation
from tidybert.estimators.keywords import ClassParameters, TextParameters
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.keywords import TrainingParameters
from tidybert.modeling.heads import reorder_labels
from tidybert.options import documented
from tidybert.tasks.answers import softmax
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.regression import Regression
from tidybert.tasks.task_options import ClassOptions, TextOptions
from tidybert.tasks.text_task import TextAnswers
from tidybert.training.interruption import as_in_python

# ``class_weight`` as users give it: a weight for each class, or for each label of a matrix y.


def weights_of_classes(
    class_weight: Any, classes: npt.NDArray[Any], column: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """The weight of each class, (C,), as scikit-learn computes it from the labels (n,)."""
    weights = np.asarray(compute_class_weight(class_weight, classes=classes, y=column))
    for label, weight in zip(classes.tolist(), weights.tolist(), strict=True):
        _check(label, weight)
    return weights


def weights_of_labels(
    class_weight: Any, labels: Sequence[Any], names: Sequence[str], y: npt.NDArray[np.bool_]
) -> dict[str, tuple[float, float]] | None:
    """By name, each label's weights in the loss of texts without it and with it.

    "balanced" gives both sides of each label the same weight in all; a mapping gives the texts that
    have a label its weight.  y: (n, L).  Raises UsageError for other values and labels, DataError
    for weights that are not above 0.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in labels]
        if unknown:
            raise UsageError(
                f"class_weight names the label {unknown[0]!r}, which y does not have; its labels "
                f"are {', '.join(map(repr, labels))}"
            )
        weights = [float(class_weight.get(label, 1.0)) for label in labels]
        for label, weight in zip(labels, weights, strict=True):
            _check(label, weight)
        return {name: (1.0, weight) for name, weight in zip(names, weights, strict=True)}
    if class_weight != "balanced":
        raise UsageError(
            f"class_weight is {class_weight!r:.40}; expected None, 'balanced', or a weight for "
            "labels by name: {label: weight}"
        )
    present = y.sum(0)
    absent = len(y) - present
    pairs = len(y) / (2 * np.stack([np.maximum(absent, 1), np.maximum(present, 1)], axis=1))
    # A label that all texts have, or none, has nothing to balance.
    pairs[(present == 0) | (absent == 0)] = 1.0
    return {name: (float(a), float(b)) for name, (a, b) in zip(names, pairs, strict=True)}


def _check(label: Any, weight: float) -> None:
    if not 0 < weight < np.inf:
        raise DataError(
            f"class_weight of {label!r} is {weight}: expected finite numbers above 0; to leave a "
            "class out, drop its rows from X and y"
        )


# TextEstimator: the common part of the estimators whose X are texts or pairs.


@dataclass(eq=False, repr=False, kw_only=True)
class TextEstimator(TextParameters, BertEstimator):
    """Base of the estimators whose X are texts or pairs; see BertClassifier for the parameters."""

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
        options = self._task_options(TextOptions)
        with as_in_python():
            return LongTexts(options.long or "truncate", options.doc_stride)

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


@documented(ClassParameters, TrainingParameters)
@dataclass(eq=False, repr=False, kw_only=True)
class BertClassifier(ClassifierMixin, ClassParameters, TextEstimator):  # type: ignore[misc]
    """Classify texts, or pairs of texts, by one label each or, with a matrix y, by any number.

    X are n texts: a list, array or Series of str; or n pairs, as (text, text_pair) or (n, 2).  y
    are n labels: strings, integers, booleans, or other values that can be sorted; or for any number
    of labels an example (n, L) of 0 and 1, an array, DataFrame or sparse matrix.

    The other parameters are options of ``tidybert finetune``, with its names, defaults and help; a
    text about "not set" is about None.  The seed is always a number: the same seed and data give
    the same bits.

    Args:
        model: a MODEL: installed weights, a directory, or a size with random weights.
        max_seq_length: tokens an example is cut to, special tokens counted; a warning says so.
        long: how to read a longer example: truncate keeps the beginning, head-tail the
            beginning and the end, windows reads it all and averages.
        random_state: scikit-learn's name for ``seed``, which it replaces where it is a number.
        warm_start: train a fitted model further; False begins again with ``model``.
        min_score: predict None where the likeliest label's probability is below; None as chosen.
        min_coverage, min_accuracy: choose that score on the part held out, so that this share of
            it has a label, or that this share of its labels is right.
        class_weight: None, "balanced", or weights by label; labels not named weigh 1.  For a matrix
            y it weighs the texts with a label against those without.
        validation_fraction: share held out, by class, to choose the step whose weights are kept;
            0 holds nothing out and keeps the last weights; None: a tenth of 1,000 and more.
        verbose: above 0, print findings about the data and the progress of training on stderr.

    Attributes:
        classes_: the labels, sorted, (C,), of y's type; for a matrix y its columns, 0 to C - 1, or
            their names in a DataFrame.
        n_features_in_: 1 for single texts, 2 for pairs.
        feature_names_in_: the columns of a DataFrame, (1,) or (2,); predictions want the same.
        n_iter_: steps of the training.
        history_: for each step a dict of step, epoch, loss and learning_rate and, after an
            evaluation, its scores.
        validation_indices_: (d,) the places in X that were held out.
        model_: the BertForSequenceClassification, in evaluation mode.
        tokenizer_: its BertTokenizer.
        task_: its Classification, or the MultiLabelClassification, whose ``thresholds`` decide.
        max_seq_length_: max_seq_length as it was fitted.
        result_: a TrainingResult: steps, seconds, and the metrics on the part held out.
    """

    _task_names = ("classify", "multi-label")
    task_: Classification | MultiLabelClassification = field(init=False)
    classes_: npt.NDArray[Any] = field(init=False)

    def _begin(self, read: Sequence[Any], y: Any, kept: npt.NDArray[np.int64]) -> Begun:
        if inputs.is_matrix(y):
            indicators, classes = inputs.read_indicators(y, len(read))
            names = inputs.label_names(classes)
            found = weights_of_labels(self.class_weight, classes.tolist(), names, indicators[kept])
            long_texts = self._long_texts()
            task = MultiLabelClassification(names, long_texts=long_texts, label_weights=found)
            with as_in_python():
                task.with_min_score(self.min_score)
            examples = [_of_labels(at, read[at], indicators[at], names) for at in kept.tolist()]
            return Begun(task, examples, fitted={"classes_": classes})
        column = inputs.read_column(y, len(read))[kept]
        classes, ids = inputs.read_labels(column)
        names = inputs.label_names(classes)
        weights = weights_of_classes(self.class_weight, classes, column)[ids]
        examples = [
            example_of(place, read[place], names[each])
            for place, each in zip(kept.tolist(), ids.tolist(), strict=True)
        ]
        # The weights of classes are in the examples.
        options = self._task_options(ClassOptions, class_weight=None)
        with as_in_python():
            one = Classification(names, long_texts=self._long_texts(), options=options)
            one = one.with_min_score(self.min_score)
        return Begun(one, examples, weights, {"classes_": classes})

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable label of each example, (n,) of y's type, or None below ``min_score``.

        After a matrix y: (n, L), 1 where a probability reaches its label's threshold, else 0.
        """
        outputs = self._outputs(X)
        if isinstance(self.task_, MultiLabelClassification):
            return self.task_.decisions(self.task_.probabilities(outputs)).astype(np.int64)
        found = np.asarray(self.classes_[outputs.argmax(1)])
        if self.task_.min_score is None:
            return found
        found = found.astype(object)
        scores = softmax(outputs / np.float32(self.task_.temperature)).max(1)
        found[scores < self.task_.min_score] = None
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the examples whose label is right; where none is given, it is not."""
        if isinstance(self.task_, MultiLabelClassification) or self.task_.min_score is None:
            return float(super().score(X, y, sample_weight))
        return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities (n, C), in the order of ``classes_``; after a matrix y each by itself."""
        outputs = self._outputs(X)
        if isinstance(self.task_, MultiLabelClassification):
            return self.task_.probabilities(outputs)
        return softmax(outputs / np.float32(self.task_.temperature))

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Logarithms of the probabilities, (n, C)."""
        outputs = self._outputs(X)
        if isinstance(self.task_, MultiLabelClassification):
            return -np.logaddexp(0.0, -outputs.astype(np.float64) / self.task_.temperature)
        scaled = (outputs / np.float32(self.task_.temperature)).astype(np.float64)
        shifted = scaled - scaled.max(1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Logits (n, C); for two classes the second's logit less the first's, (n,)."""
        outputs = self._outputs(X).astype(np.float64)
        if isinstance(self.task_, MultiLabelClassification) or outputs.shape[1] != 2:
            return outputs
        return np.asarray(outputs[:, 1] - outputs[:, 0])

    def _labelled(self, X: Any, y: Any, begun: Begun | None = None) -> list[TextExample]:
        texts = self._texts(X, begun)
        task, classes = (
            (self.task_, self.classes_) if begun is None else (begun.task, begun.fitted["classes_"])
        )
        names = task.names
        if isinstance(task, MultiLabelClassification):
            indicators, found = inputs.read_indicators(y, len(texts))
            if found.tolist() != classes.tolist():
                raise DataError(
                    f"y has the columns {found.tolist()!r:.80}: expected those of the training, "
                    f"{classes.tolist()!r:.80}"
                )
            return [_of_labels(at, text, indicators[at], names) for at, text in enumerate(texts)]
        name_of = dict(zip(classes.tolist(), names, strict=True))
        values = inputs.read_column(y, len(texts)).tolist()
        unknown = [value for value in values if value not in name_of]
        if unknown:
            raise DataError(
                f"y has the label {unknown[0]!r}, which the training does not have: its labels are "
                f"{', '.join(map(repr, list(name_of)[:10]))}"
            )
        return [
            example_of(at, text, name_of[value])
            for at, (text, value) in enumerate(zip(texts, values, strict=True))
        ]

    def _label_values(self) -> dict[str, Any]:
        return dict(zip(self.task_.names, self.classes_.tolist(), strict=True))

    def _stored(self) -> dict[str, Any]:
        stored = super()._stored()
        if isinstance(self.class_weight, Mapping):
            # JSON's keys are strings.
            given = stored["class_weight"]
            labels = [key.item() if isinstance(key, np.generic) else key for key in given]
            names = inputs.label_names(np.array(labels, dtype=object))
            stored["class_weight"] = dict(zip(names, given.values(), strict=True))
        return stored

    def _restore(self, values: Mapping[str, Any]) -> None:
        super()._restore(values)
        names = list(self.task_.label_names or ())
        self.classes_ = np.array([values.get(name, name) for name in names])
        if isinstance(self.class_weight, Mapping):
            weights = self.class_weight.items()
            self.class_weight = {values.get(name, name): weight for name, weight in weights}
        if isinstance(self.task_, Classification):
            # The shell orders classes as numbers where they are; scikit-learn expects them sorted.
            order = np.argsort(self.classes_, kind="stable")
            names = list(self.task_.label_names or ())
            self.classes_ = self.classes_[order]
            self.task_ = Classification(
                [names[index] for index in order],
                temperature=self.task_.temperature,
                long_texts=self.task_.long_texts,
                min_score=self.task_.min_score,
            )
            reorder_labels(self.model_, order.tolist())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _of_labels(
    place: int, text: inputs.Text, indicators: npt.NDArray[np.bool_], names: Sequence[str]
) -> TextExample:
    return example_of(
        place, text, labels=tuple(names[at] for at in np.flatnonzero(indicators).tolist())
    )


# BertRegressor: numbers of texts and of pairs behind scikit-learn's interface.


class BertRegressor(RegressorMixin, TextEstimator):  # type: ignore[misc]
    """Predict a number from texts, or from pairs of texts, by least squares.

    X are n texts or pairs, see BertClassifier, and y finite numbers.  Parameters and attributes are
    those of BertClassifier but for ``class_weight`` and ``classes_``; Pearson's correlation on the
    part held out chooses which weights to keep.
    """

    _task_names = ("regress",)

    def _begin(self, read: Sequence[Any], y: Any, kept: npt.NDArray[np.int64]) -> Begun:
        scores = inputs.read_scores(inputs.read_column(y, len(read))[kept])
        examples = [
            example_of(place, read[place], repr(score))
            for place, score in zip(kept.tolist(), scores.tolist(), strict=True)
        ]
        options = self._task_options(TextOptions)
        return Begun(Regression.from_examples(examples, options), examples)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The number predicted for each example, (n,)."""
        return self._outputs(X)[:, 0].astype(np.float64)

    def _labelled(self, X: Any, y: Any, begun: Begun | None = None) -> list[TextExample]:
        texts = self._texts(X, begun)
        scores = inputs.read_scores(inputs.read_column(y, len(texts)))
        return [
            example_of(at, text, repr(score))
            for at, (text, score) in enumerate(zip(texts, scores.tolist(), strict=True))
        ]
