"""BertVectorizer: frozen features in pipelines, pickles, containers, and what is refused."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.utils._set_output import ADAPTERS_MANAGER

from tidybert.errors import DataError, ModelNotFoundError, UsageError, WeightsError
from tidybert.estimators import BertVectorizer
from tidybert.inference.embedding import Embedder

Data = Callable[..., tuple[list[str], list[str]]]
TEXTS = ["we saw a red hen", "the dog", ""]


@pytest.fixture
def vectorizer(tiny_model: Path) -> BertVectorizer:
    return BertVectorizer(tiny_model).fit(TEXTS)


def test_the_vectors_are_those_of_the_embedder(tiny_model: Path) -> None:
    settings: dict[str, Any] = {
        "pooling": "cls",
        "layers": (-1, 0),
        "combine": "sum",
        "normalize": True,
        "max_seq_length": 16,
        "prompt": "a red ",
        "prompt_name": None,
        "truncate_dim": 7,
    }
    vectorizer = BertVectorizer(tiny_model, **settings)

    vectors = vectorizer.fit_transform(np.array(TEXTS))

    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, Embedder(tiny_model, **settings).embed(TEXTS))
    assert vectorizer.settings_ == {"model": tiny_model, **settings}
    assert vectorizer.n_features_in_ == 1
    wide = BertVectorizer(tiny_model, layers="all").fit(["a"])
    assert wide.transform(["a", "b"]).shape == (2, 48)
    assert wide.get_feature_names_out().tolist() == [f"bertvectorizer{at}" for at in range(48)]


def test_a_bar_where_it_is_wanted(
    vectorizer: BertVectorizer, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(
        "tidybert.system.terminal.notebook_display",
        lambda: lambda content, **_how: shown.append(content["text/html"]),
    )
    quiet = vectorizer.transform(TEXTS)
    embedder = Embedder(tiny_model)
    embedder.embed(TEXTS)
    assert not shown

    np.testing.assert_array_equal(vectorizer.set_params(verbose=1).transform(TEXTS), quiet)
    assert shown[-1].startswith('embed <progress value="3" max="3">')
    shown.clear()
    np.testing.assert_array_equal(embedder.embed(TEXTS, progress=True), quiet)
    assert shown[-1].startswith('embed <progress value="3" max="3">')


def test_pairs(tiny_model: Path) -> None:
    pairs = [("we saw", "a red hen"), ("the dog", "")]
    vectorizer = BertVectorizer(tiny_model)

    vectors = vectorizer.fit_transform(pairs)

    expected = Embedder(tiny_model).embed(*map(list, zip(*pairs, strict=True)))
    np.testing.assert_array_equal(vectors, expected)
    assert vectorizer.n_features_in_ == 2
    with pytest.raises(DataError, match=r"holds single texts, .* was fitted on pairs of texts"):
        vectorizer.transform(["a"])


def test_a_pipeline_learns_the_toy_problem(tiny_model: Path, toy: Data) -> None:
    pipeline = make_pipeline(
        BertVectorizer(tiny_model, layers="all"), LogisticRegression(max_iter=1000)
    )

    scores = cross_val_score(pipeline, *toy(192), cv=3)

    assert scores.mean() > 0.8  # half of it by chance
    search = GridSearchCV(pipeline, {"bertvectorizer__pooling": ["cls", "max"]}, cv=2)
    assert search.fit(*toy(48)).best_params_["bertvectorizer__pooling"] in ("cls", "max")


def test_a_union_puts_layers_side_by_side(tiny_model: Path) -> None:
    union = make_union(BertVectorizer(tiny_model, layers=0), BertVectorizer(tiny_model))

    np.testing.assert_array_equal(
        union.fit_transform(TEXTS), Embedder(tiny_model, layers=(0, -1)).embed(TEXTS)
    )


def test_a_clone_is_not_fitted(vectorizer: BertVectorizer) -> None:
    copy = clone(vectorizer)

    assert copy.get_params() == vectorizer.get_params()
    with pytest.raises(NotFittedError):
        copy.transform(TEXTS)


def test_set_output_names_the_columns(vectorizer: BertVectorizer) -> None:
    class Frame(dict[str, Any]):
        """What stands here for pandas."""

    class FrameAdapter:
        container_lib = "frame"

        def create_container(self, X_output: Any, X_original: Any, columns: Any, **_: Any) -> Any:
            return Frame(zip(columns(), X_output.T, strict=True))

    ADAPTERS_MANAGER.register(FrameAdapter())
    try:
        frame = vectorizer.set_output(transform="frame").transform(TEXTS)
    finally:
        del ADAPTERS_MANAGER.adapters["frame"]

    assert list(frame) == [f"bertvectorizer{at}" for at in range(16)]
    assert frame["bertvectorizer3"].shape == (3,)


def test_a_pickle_names_the_model_and_holds_no_weights(vectorizer: BertVectorizer) -> None:
    content = pickle.dumps(vectorizer)

    assert len(content) < 2000
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.transform(TEXTS), vectorizer.transform(TEXTS))
    assert again.get_params() == vectorizer.get_params()
    again = pickle.loads(content).set_params(pooling="cls")
    np.testing.assert_array_equal(again.transform(TEXTS), vectorizer.transform(TEXTS))


def test_a_pickle_wants_the_model_that_it_was_fitted_with(
    tiny_model: Path, tiny_run: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    content = pickle.dumps(BertVectorizer(model).fit(TEXTS))

    shutil.rmtree(model)
    with pytest.raises(ModelNotFoundError, match="no directory"):
        pickle.loads(content).transform(TEXTS)
    shutil.copytree(tiny_run, model)
    with pytest.raises(WeightsError, match=r"model is not the model that this .* Fit it and"):
        pickle.loads(content).transform(TEXTS)


def test_a_long_text_is_cut_with_a_warning(tiny_model: Path) -> None:
    vectorizer = BertVectorizer(tiny_model, max_seq_length=4).fit(TEXTS)

    message = r"1 of 3 examples are longer than max_seq_length=4 .*the longest has 7\)"
    with pytest.warns(UserWarning, match=message) as caught:
        vectorizer.transform(TEXTS)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "token"}, "^pooling is token; expected mean, cls or max"),
        ({"layers": 5}, "^layers: the model has no layer 5"),
        ({"max_seq_length": 40}, "^max_seq_length is 40, but the model has positions for 32"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_python_s_words(
    tiny_model: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        BertVectorizer(tiny_model, **settings).fit(TEXTS)
    with pytest.raises(UsageError, match=r"^max_seq_length=2 leaves no room"):
        BertVectorizer(tiny_model, max_seq_length=2).fit(TEXTS).transform(TEXTS)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a red", "X is one str"),
        ([1.0, 2.0], r"X\[0\] is 1.0, of type float"),
        (np.zeros((2, 3)), "X holds numbers"),
        (["a", None], r"missing text \(None or NaN\), the first at X\[1\]"),
        ([], "X is empty"),
    ],
)
def test_what_is_no_text_is_refused(vectorizer: BertVectorizer, X: Any, message: str) -> None:
    for use in (vectorizer.fit, vectorizer.transform):
        with pytest.raises(DataError, match=message):
            use(X)
