"""BertClassifier and BertRegressor: texts and pairs behind scikit-learn's interface."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tidybert.data.long_texts import LongTexts
from tidybert.errors import DataError
from tidybert.estimators import checked_inputs as inputs
from tidybert.estimators.base import BertEstimator
from tidybert.estimators.class_weights import weights_of_classes, weights_of_labels
from tidybert.estimators.fit_notes import warn_of_truncation
from tidybert.estimators.held_out import HeldOut, read_held_out
from tidybert.files.text_examples import TextExample
from tidybert.modeling.heads import reorder_labels
from tidybert.tasks.answers import softmax
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.regression import Regression
from tidybert.tasks.task import AnyTask, Task
from tidybert.tasks.task_options import TextOptions
from tidybert.tasks.text_task import TextAnswers
from tidybert.training.python_spelling import as_in_python


@dataclass(eq=False, repr=False, kw_only=True)
class TextEstimator(BertEstimator):
    """Base of the estimators whose X are texts or pairs; see BertClassifier for the parameters."""

    long: Literal["truncate", "head-tail", "windows"] | None = "truncate"

    task_: Classification | MultiLabelClassification | Regression = field(init=False)

    def _read(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[list[inputs.Text], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The texts, the places of those with a weight above 0, and these weights."""
        texts = inputs.read_texts(X)
        inputs.require_y(self, y)
        weights = inputs.read_weights(sample_weight, len(texts))
        kept = np.flatnonzero(weights)
        return texts, kept, weights[kept]

    def _finetune(
        self,
        task: AnyTask,
        X: Any,
        examples: Sequence[TextExample],
        weights: npt.NDArray[np.float64],
        held_out: HeldOut,
        **fitted: Any,
    ) -> Self:
        width = 1 if examples[0].text_pair is None else 2
        names = inputs.column_names(X)
        if names is not None:
            fitted["feature_names_in_"] = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self._train(task, examples, weights, held_out, n_features_in_=width, **fitted)

    def _texts(self, X: Any) -> list[inputs.Text]:
        """Texts for a fitted model, with as many columns, of the same names."""
        check_is_fitted(self)
        texts = inputs.read_texts(X)
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


@dataclass(eq=False, repr=False, kw_only=True)
class BertClassifier(ClassifierMixin, TextEstimator):  # type: ignore[misc]
    """Classify texts, or pairs of texts, by one label each or, with a matrix y, by any number.

    The parameters have the names and defaults of TrainingArguments, ``tidybert finetune`` and
    arguments.json; ``random_state`` is another name for ``seed``.  The seed is always a number: the
    same seed and data give the same bits.

    Args:
        model: a MODEL: installed weights (minilm), a directory, or a size with random weights.
        vocab: a MODEL whose vocabulary is used, with a size.
        max_seq_length: tokens an example is cut to, special tokens counted; a warning says so.
        long: how to read a longer example: truncate keeps the beginning, head-tail the
            beginning and the end, windows reads it all and averages.
        doc_stride: tokens from the beginning of one window to that of the next; None: 128, or half
            of a window that is shorter than twice that.
        num_train_epochs: passes over the training data; a part of one is allowed.
        max_steps: stop after this many steps, even before num_train_epochs.
        train_batch_size: examples a step.
        tokens_per_batch: split a step into parts of at most this many tokens.
        learning_rate: peak of the schedule; None: 5e-5, for encoders narrower than 512 1e-4, and
            3e-4 where they tag or answer.
        warmup_proportion: share of the steps over which the rate rises from 0.
        head_start: how a new head begins: None or "probe" fits it to the encoder's states,
            "random" draws it.
        pooling: the head reads the state of [CLS] (cls) or the mean of all tokens' states (mean),
            which transformers cannot open; None: as ``model``, usually cls.
        weight_decay: decoupled decay, never on biases and LayerNorm.
        adam_beta1, adam_beta2, adam_epsilon: AdamW's settings.
        max_grad_norm: gradients are scaled down to this norm.
        seed: random seed for head weights, example order, dropout and the part held out.
        random_state: scikit-learn's name for ``seed``, which it replaces where it is a number.
        warm_start: train a fitted model further; False begins again with ``model``.
        new_head: reinitialise the head even if ``model`` has one for the same labels.
        dropout: in the encoder and before the head; None: as ``model``.
        class_weight: None, "balanced", or weights by label; labels not named weigh 1.  For a matrix
            y it weighs the texts with a label against those without.
        validation_fraction: share held out, by class, to choose the step whose weights are kept;
            0 holds nothing out and keeps the last weights.
        eval_steps: evaluate on the part held out after this many steps; None: after each epoch.
        early_stopping_patience: stop after this many evaluations without a better one.
        freeze_layers: do not train the embeddings and this many of the lowest layers.
        freeze_embeddings: do not train the embeddings.
        precision: float32 or bfloat16; auto: bfloat16 on CUDA, float32 elsewhere.
        device: auto, cpu, cuda or cuda:N, to fit and to predict on.
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
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None

    task_: Classification | MultiLabelClassification = field(init=False)
    classes_: npt.NDArray[Any] = field(init=False)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fine-tune ``model`` on texts X and labels y.

        Args:
            X: n texts: a list, array or Series of str; or n pairs, as (text, text_pair) or (n, 2).
            y: n labels: strings, integers, booleans, or other values that can be sorted; or for any
                number of labels an example (n, L) of 0 and 1, an array, DataFrame or sparse matrix.
            sample_weight: (n,) the examples' shares in the loss of a step; 0 leaves one out.
            X_val, y_val: examples to measure on, in place of ``validation_fraction``.
            groups: (n,) such as authors; ``validation_fraction`` then holds out whole groups.

        Raises DataError (a ValueError) for data that cannot be trained on, UsageError for a
        parameter's value, and what loading ``model`` raises.  Warns of what the checks find in the
        data (DataWarning), and of a model that gives one answer to all that it is measured on
        (CollapseWarning).
        """
        texts, kept, weights = self._read(X, y, sample_weight)
        task: Classification | MultiLabelClassification
        if inputs.is_matrix(y):
            indicators, classes = inputs.read_indicators(y, len(texts))
            names = inputs.label_names(classes)
            found = weights_of_labels(self.class_weight, classes.tolist(), names, indicators[kept])
            task = MultiLabelClassification(
                names, long_texts=self._long_texts(), label_weights=found
            )
            examples = [_of_labels(at, texts[at], indicators[at], names) for at in kept.tolist()]
        else:
            column = inputs.read_column(y, len(texts))[kept]
            classes, ids = inputs.read_labels(column)
            names = inputs.label_names(classes)
            weights = weights * weights_of_classes(self.class_weight, classes, column)[ids]
            examples = [
                example_of(place, texts[place], names[each])
                for place, each in zip(kept.tolist(), ids.tolist(), strict=True)
            ]
            task = Classification(names, long_texts=self._long_texts())
        held_out = read_held_out(
            X_val,
            y_val,
            groups,
            len(texts),
            lambda X, y: _known_examples(X, y, classes, names, task, len(texts[0])),
        )
        return self._finetune(task, X, examples, weights, held_out, classes_=classes)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable label of each example, (n,) of y's type.

        After a matrix y: (n, L), 1 where a probability reaches its label's threshold, else 0.
        """
        outputs = self._outputs(X)
        if isinstance(self.task_, MultiLabelClassification):
            return self.task_.decisions(self.task_.probabilities(outputs)).astype(np.int64)
        return np.asarray(self.classes_[outputs.argmax(1)])

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

    def _examples(self, X: Any, y: Any) -> list[TextExample]:
        width = len(self._texts(X)[0])
        return _known_examples(X, y, self.classes_, self.task_.names, self.task_, width)

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
            self._sort_classes(self.task_)

    def _sort_classes(self, task: Classification) -> None:
        """The shell orders classes as numbers where they are; scikit-learn expects them sorted."""
        order = np.argsort(self.classes_, kind="stable")
        names = list(task.label_names or ())
        self.classes_ = self.classes_[order]
        self.task_ = Classification(
            [names[index] for index in order],
            temperature=task.temperature,
            long_texts=task.long_texts,
        )
        reorder_labels(self.model_, order.tolist())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class BertRegressor(RegressorMixin, TextEstimator):  # type: ignore[misc]
    """Predict a number from texts, or from pairs of texts, by least squares.

    Parameters and attributes are those of BertClassifier but for ``class_weight`` and ``classes_``;
    Pearson's correlation on the part held out chooses which weights to keep.
    """

    _task_names = ("regress",)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fine-tune ``model`` on texts X and finite numbers y; see BertClassifier.fit."""
        texts, kept, weights = self._read(X, y, sample_weight)
        scores = inputs.read_scores(inputs.read_column(y, len(texts))[kept])
        examples = [
            example_of(place, texts[place], repr(score))
            for place, score in zip(kept.tolist(), scores.tolist(), strict=True)
        ]
        width = len(texts[0])
        held_out = read_held_out(
            X_val, y_val, groups, len(texts), lambda X, y: _scored_examples(X, y, width)
        )
        return self._finetune(Regression(self._long_texts()), X, examples, weights, held_out)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The number predicted for each example, (n,)."""
        return self._outputs(X)[:, 0].astype(np.float64)

    def _examples(self, X: Any, y: Any) -> list[TextExample]:
        return _scored_examples(X, y, len(self._texts(X)[0]))


def _known_examples(
    X: Any,
    y: Any,
    classes: npt.NDArray[Any],
    names: Sequence[str],
    task: Task[TextExample],
    width: int,
) -> list[TextExample]:
    """Examples with labels of a task; DataError for other labels, or another number of texts."""
    texts = inputs.read_texts(X)
    inputs.check_width(texts, width, "estimator")
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


def _scored_examples(X: Any, y: Any, width: int) -> list[TextExample]:
    texts = inputs.read_texts(X)
    inputs.check_width(texts, width, "estimator")
    scores = inputs.read_scores(inputs.read_column(y, len(texts)))
    return [
        example_of(at, text, repr(score))
        for at, (text, score) in enumerate(zip(texts, scores.tolist(), strict=True))
    ]


def _of_labels(
    place: int, text: inputs.Text, indicators: npt.NDArray[np.bool_], names: Sequence[str]
) -> TextExample:
    return example_of(
        place, text, labels=tuple(names[at] for at in np.flatnonzero(indicators).tolist())
    )


def example_of(
    place: int, text: inputs.Text, label: str | None = None, labels: tuple[str, ...] | None = None
) -> TextExample:
    """The example at a place of X, whose row is that place."""
    return TextExample(text[0], text[1] if len(text) == 2 else None, label, place, labels)
