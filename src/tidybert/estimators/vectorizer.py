"""BertVectorizer: frozen features behind scikit-learn's interface (paper 5.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tidybert.catalog import DEFAULT_MODEL
from tidybert.data.features import text_features
from tidybert.errors import UsageError, WeightsError
from tidybert.estimators.base import forget_warnings, warn_of_truncation
from tidybert.estimators.checked_inputs import (
    check_column_names,
    check_width,
    column_names,
    read_texts,
    text_tags,
)
from tidybert.files.rows import as_list
from tidybert.finetuning.api import finetune
from tidybert.inference.embedding import Embedder
from tidybert.inference.keywords import VectorParameters
from tidybert.options import documented
from tidybert.system.terminal import counting_bar
from tidybert.training.interruption import as_in_python


@documented(VectorParameters)
@dataclass(eq=False, repr=False, kw_only=True)
class BertVectorizer(
    VectorParameters,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Turn texts, or pairs of texts, into vectors of a pre-trained encoder.

    Fitting learns nothing: it loads the encoder and notes whether the texts come in pairs.  With
    ``training`` it trains the encoder first, as ``tidybert finetune embed`` does.  The vectors are
    those of ``Embedder`` and ``tidybert embed``.

    A pickle holds the model's name and the settings, but no weights.  The machine that opens it
    needs the same MODEL; a hash is checked at the first use.

    Args:
        model: a MODEL: installed weights or a directory.  The package contains the default; the
            vectors of minilm, which ``tidybert download minilm`` installs, tell more.
        training: arguments of ``tidybert.finetune`` by name, with ``out``, a new directory for the
            RUN whose vectors are taken.  None trains nothing.
        verbose: above 0, ``transform`` shows a bar.

    Attributes:
        n_features_in_: 1 for single texts, and after a training; 2 for pairs.
        feature_names_in_: the columns of a DataFrame, (1,) or (2,); ``transform`` wants the same.
        settings_: the parameters at the time of fitting, without ``device`` and ``verbose``.
        fingerprint_: a hash of the encoder's weights and its tokenizer.
    """

    model: str | Path = field(default=DEFAULT_MODEL, kw_only=False)
    training: Mapping[str, Any] | None = None
    verbose: int = 0

    n_features_in_: int = field(init=False)
    feature_names_in_: npt.NDArray[Any] = field(init=False)
    settings_: dict[str, Any] = field(init=False)
    fingerprint_: str = field(init=False)
    _n_features_out: int = field(init=False)
    _embedder: Embedder = field(init=False)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the encoder; X is texts or pairs (n, 2), see BertClassifier.fit.

        With ``training``, X is pairs that belong together, pairs with scores ``y``, or texts with
        labels ``y``.

        Raises DataError for anything but texts, UsageError for settings that do not fit, and the
        errors of loading a MODEL.
        """
        texts = read_texts(X)
        settings = self.get_params()
        for name in ("training", "device", "verbose"):
            del settings[name]
        if self.training is not None:
            settings["model"] = self._train(texts, y)
        with as_in_python():
            self._embedder = Embedder(**settings, device=self.device)
        self.settings_ = settings
        self.fingerprint_ = self._embedder.fingerprint
        self._n_features_out = self._embedder.dimension
        self.n_features_in_ = len(texts[0]) if self.training is None else 1
        names = column_names(X) if self.training is None else None
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        forget_warnings(self)
        return self

    def _train(self, texts: Sequence[Sequence[str]], y: Any) -> str:
        """Train the encoder, and return the RUN."""
        assert self.training is not None
        given = dict(self.training)
        if given.get("out") is None:
            raise UsageError(
                "training needs out, a new directory for the trained model: "
                "BertVectorizer(training={'out': 'run'})"
            )
        names = ("text",) if len(texts[0]) == 1 else ("anchor", "positive")
        data = dict(zip(names, map(list, zip(*texts, strict=True)), strict=True))
        if y is not None:
            data["label"] = as_list(y, "y")
        given = {"device": self.device, "max_seq_length": self.max_seq_length, **given}
        finetune(data, "embed", self.model, verbose=self.verbose > 0, **given)
        return str(given["out"])

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """(n, d): the vector of each text, in order; warns where one is cut."""
        check_is_fitted(self)
        texts = read_texts(X)
        check_width(texts, self.n_features_in_, type(self).__name__)
        check_column_names(self, X)
        if not hasattr(self, "_embedder"):
            # After a pickle the encoder that was fitted is loaded again.
            embedder = Embedder(**self.settings_, device=self.device).matching(self.fingerprint_)
            if embedder.fingerprint != self.fingerprint_:
                raise WeightsError(
                    f"{self.settings_['model']} is not the model that this BertVectorizer was "
                    "fitted with: its weights or its vocabulary differ. Fit it and the steps after "
                    "it again"
                )
            self._embedder = embedder
        embedder = self._embedder
        first, *second = ([*column] for column in zip(*texts, strict=True))
        pairs = second[0] if second else None
        with as_in_python():
            features = text_features(
                embedder.tokenizer, first, pairs, embedder.max_seq_length, prompt=embedder.prompt
            )
        truncated = [one.num_tokens for one in features if one.truncated]
        warn_of_truncation(self, truncated, len(features), embedder.max_seq_length)
        with counting_bar("embed", len(features), wanted=self.verbose > 0) as reporter:
            return embedder.vectors(features, reporter)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_embedder", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = text_tags(super().__sklearn_tags__())
        tags.transformer_tags.preserves_dtype = []
        return tags
