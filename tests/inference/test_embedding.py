"""Frozen features: transformers' hidden states, pooled; and only what is needed computed."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tidybert.checkpoints.sentence_form import POOLINGS
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError, DataError, TextError, TruncationWarning, UsageError
from tidybert.inference.embedding import Embedder, find_layers
from tidybert.inference.options import Combination
from tidybert.tokenization import BertTokenizer

TEXTS = ["we saw a red hen", "the dog", "old and new and blue and white", "", "a"]
PAIRS = ["a cow", "was near the old dog", "red", "the", ""]


@pytest.fixture(scope="module")
def foreign(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
    reference: Callable[..., Any],
) -> tuple[Path, Any]:
    """A directory that transformers saved, four layers with random biases, and its model."""
    directory = tmp_path_factory.mktemp("foreign")
    model = reference(tiny_config(num_hidden_layers=4))
    model.save_pretrained(directory)
    BertTokenizer.from_pretrained(tiny_model).save(directory)
    return directory, model


def their_states(
    directory: Path, model: Any, pairs: list[str] | None = None
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """transformers' five hidden states (B, S, H) of the padded texts, and the attention_mask."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = tokenizer(TEXTS, pairs, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True)
    return list(output.hidden_states), inputs["attention_mask"]


def pooled(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """(B, d) of padded (B, S, d), as sentence-transformers pools."""
    if pooling == "cls":
        return states[:, 0]
    weights = mask[:, :, None].float()
    if pooling == "mean":
        return (states * weights).sum(1) / weights.sum(1)
    return states.masked_fill(weights == 0, -torch.inf).amax(1)


def combined(states: list[torch.Tensor], combine: str) -> torch.Tensor:
    if combine == "concat":
        return torch.cat(states, -1)
    stacked = torch.stack(states)
    return stacked.sum(0) if combine == "sum" else stacked.mean(0)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("combine", get_args(Combination))
@pytest.mark.parametrize("layers", [-1, 0, 2, (-1, -2), (0, 4, 1), "last4", "all"])
def test_the_vectors_are_those_of_transformers(
    foreign: tuple[Path, Any], pooling: str, combine: str, layers: Any
) -> None:
    states, mask = their_states(*foreign)
    named = {"last4": [1, 2, 3, 4], "all": [0, 1, 2, 3, 4]}
    chosen = named[layers] if isinstance(layers, str) else np.atleast_1d(layers).tolist()
    expected = pooled(combined([states[at] for at in chosen], combine), mask, pooling)

    embedder = Embedder(foreign[0], pooling=pooling, layers=layers, combine=combine)
    vectors = embedder.embed(TEXTS)

    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pairs_are_read_with_their_token_types(foreign: tuple[Path, Any], pooling: str) -> None:
    states, mask = their_states(*foreign, pairs=PAIRS)

    vectors = Embedder(foreign[0], pooling=pooling).embed(TEXTS, PAIRS)

    np.testing.assert_allclose(vectors, pooled(states[-1], mask, pooling).numpy(), atol=1e-5)


@pytest.mark.weights
def test_the_real_weights_give_what_sentence_transformers_gives(minilm_directory: Path) -> None:
    import transformers

    # sentence-transformers cuts a text at 256 tokens.
    texts = ["A man is eating food.", "The invoice is wrong", "Wörld", "", "a long text " * 100]
    texts += ["pay [SEP] now", "[MASK][UNK] [sep]"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_directory)
    model = transformers.AutoModel.from_pretrained(minilm_directory).eval()
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    expected = pooled(states, inputs["attention_mask"], "mean")

    found = Embedder("minilm", normalize=False).embed(texts)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    units = Embedder("minilm").embed(texts)
    np.testing.assert_allclose(units, torch.nn.functional.normalize(expected).numpy(), atol=1e-5)


def test_the_limit_is_that_of_the_directory(tiny_model: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    for length, expected in ((7, 7), (500, 32), (None, 32)):
        (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
        assert Embedder(model).max_seq_length == expected
        assert Embedder(model, max_seq_length=9).max_seq_length == 9
    (model / "sentence_bert_config.json").write_text('{"max_seq_length": true}')
    with pytest.raises(ConfigError, match="max_seq_length is True; expected a whole number"):
        Embedder(model)


def test_the_vectors_of_tokens(foreign: tuple[Path, Any]) -> None:
    states, mask = their_states(*foreign, pairs=PAIRS)
    expected = torch.cat(states[-2:], -1)
    embedder = Embedder(foreign[0], layers=(-2, -1), pooling="cls")

    found = embedder.embed_tokens(TEXTS, PAIRS)

    for one, text, pair, theirs, places in zip(found, TEXTS, PAIRS, expected, mask, strict=True):
        np.testing.assert_allclose(one.vectors, theirs[places == 1].numpy(), atol=1e-5)
        assert len(one.tokens) == len(one.offset_mapping) == len(one.vectors)
        for token, (begin, end), side in zip(
            one.tokens, one.offset_mapping, one.sequence_ids, strict=True
        ):
            if side is None:
                assert (token in ("[CLS]", "[SEP]"), begin, end) == (True, 0, 0)
            else:
                assert (text, pair)[side][begin:end] == token
    (alone,) = embedder.embed_tokens(TEXTS[:1])
    assert alone.tokens == ["[CLS]", "we", "saw", "a", "red", "hen", "[SEP]"]
    unit = Embedder(foreign[0], normalize=True).embed_tokens(["a red"])[0].vectors
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)


@pytest.fixture(scope="module")
def embedder(tiny_model: Path) -> Embedder:
    return Embedder(tiny_model)


@given(order=st.permutations(range(len(TEXTS))))
def test_the_order_and_the_company_of_texts_change_nothing(
    embedder: Embedder, order: list[int]
) -> None:
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])

    together = embedder.embed([TEXTS[at] for at in order])

    np.testing.assert_allclose(together, alone[order], atol=1e-5)


def test_many_batches_are_put_back_in_order(
    embedder: Embedder, toy_examples: Callable[..., Any]
) -> None:
    texts = [one.text for one in toy_examples(600)]
    alone = np.concatenate([embedder.embed([text]) for text in texts[::50]])

    np.testing.assert_allclose(embedder.embed(texts)[::50], alone, atol=1e-5)
    tokens = embedder.embed_tokens(texts)
    for one, text in zip(tokens[::50], texts[::50], strict=True):
        assert one.tokens == ["[CLS]", *text.split(), "[SEP]"]
        (same,) = embedder.embed_tokens([text])
        np.testing.assert_allclose(one.vectors, same.vectors, atol=1e-5)


def test_no_texts_have_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 16)
    assert embedder.embed_tokens([]) == []


@pytest.mark.parametrize(
    ("pooling", "layers", "num_rows"),
    [
        # Rows of each layer's output: 9 tokens in 2 texts, or [CLS] alone where it is the highest.
        # A pass through all layers fills 9 rows up to 16.
        ("mean", -1, [16, 16, 16, 16]),
        ("cls", -1, [16, 16, 16, 2]),
        ("cls", "last4", [9, 9, 9, 2]),
        ("cls", 2, [9, 2]),
        ("max", (0, 1), [9]),
        ("mean", 0, []),
    ],
)
def test_no_more_is_computed_than_is_read(
    foreign: tuple[Path, Any], pooling: str, layers: Any, num_rows: list[int]
) -> None:
    embedder = Embedder(foreign[0], pooling=pooling, layers=layers)
    seen = []
    for layer in embedder.encoder.encoder.layers:
        layer.register_forward_hook(lambda _module, _given, output: seen.append(len(output)))

    embedder.embed(["the dog", "a red cow"])

    assert seen == num_rows


def test_what_is_cut_is_said(tiny_model: Path) -> None:
    for name in ("embed", "embed_tokens"):
        embedder = Embedder(tiny_model, max_seq_length=4)
        with pytest.warns(TruncationWarning, match="1 of 2 texts were cut to 4 tokens") as caught:
            getattr(embedder, name)(["a red cow", "a cow"])
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = embedder.embed(["a red cow"])
    assert repr(embedder).startswith(f"Embedder(model='{tiny_model}', pooling='mean'")
    assert "<th>dimension</th><td>16</td>" in embedder._repr_html_()
    np.testing.assert_allclose(cut, embedder.embed(["a red"]), atol=1e-6)
    assert Embedder(tiny_model).max_seq_length == 32


def test_the_fingerprint_is_of_weights_and_tokenizer(
    embedder: Embedder, tiny_model: Path, foreign: tuple[Path, Any]
) -> None:
    same = Embedder(tiny_model, layers=0, pooling="cls")
    assert embedder.fingerprint == same.fingerprint != Embedder(foreign[0]).fingerprint

    cased = Embedder(tiny_model)
    cased.tokenizer = BertTokenizer(cased.tokenizer.vocabulary, do_lower_case=False)
    assert cased.fingerprint != embedder.fingerprint
    changed = Embedder(tiny_model)
    with torch.no_grad():
        changed.encoder.embeddings.layer_norm.bias[3] += 1
    assert changed.fingerprint != embedder.fingerprint


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (-1, (12,)),
        ("-1", (12,)),
        ("0", (0,)),
        ("-13", (0,)),
        ("-4,-3, -2,-1", (9, 10, 11, 12)),
        ([-1, 1], (12, 1)),
        (np.int64(3), (3,)),
        ("last4", (9, 10, 11, 12)),
        ("last1", (12,)),
        ("last12", tuple(range(1, 13))),
        ("all", tuple(range(13))),
    ],
)
def test_layers_are_counted_as_the_paper_does(layers: Any, expected: tuple[int, ...]) -> None:
    assert find_layers(layers, 12) == expected


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (13, r"no layer 13; it has 0 \(the output of the embeddings\), 1 to 12, or .* -1 to -13"),
        ("-14", "no layer -14"),
        ("last13", "last13'?: the model has 12 layers"),
        ("last0", "the model has 12 layers"),
        ("1,-12", "named twice"),
        ("last", "'last': expected a number such as -1, several as in -2,-1, lastN"),
        ("", "expected a number"),
        ([], "expected a number"),
        ("1;2", "expected a number"),
        (None, "expected a number"),
    ],
)
def test_layers_that_are_not_there_are_refused(layers: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"layers.*{message}"):
        find_layers(layers, 12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "token"}, "pooling is token; expected mean, cls or max"),
        ({"combine": "max"}, "combine is max; expected concat, sum or mean"),
        ({"layers": 3}, "layers: the model has no layer 3"),
        ({"max_seq_length": 33}, r"max_seq_length is 33, .* 32 tokens"),
        ({"device": "gpu"}, "device='gpu'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tiny_model: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Embedder(tiny_model, **settings)


def test_what_is_no_list_of_texts_is_refused(embedder: Embedder) -> None:
    for embed in (embedder.embed, embedder.embed_tokens):
        with pytest.raises(DataError, match="one string was given"):
            embed("red", ["a"])
        with pytest.raises(DataError, match="given: 1 text, 2 second texts"):
            embed(["red"], ["a", "b"])
        with pytest.raises(TextError, match="None"):
            embed(["red", None])  # type: ignore[list-item]
        for table in ({"text": ["red"]}, pa.table({"text": ["red"]})):
            with pytest.raises(DataError, match=r"a table was given; .*give one column"):
                embed(table)  # type: ignore[arg-type]


def test_a_column_of_arrow_has_vectors(embedder: Embedder) -> None:
    found = embedder.embed(pa.array(TEXTS))
    pairs = embedder.embed(pa.array(TEXTS), pa.array(TEXTS))

    np.testing.assert_array_equal(found, embedder.embed(TEXTS))
    np.testing.assert_array_equal(pairs, embedder.embed(TEXTS, TEXTS))


def test_one_text_has_one_vector_and_encode_is_embed(embedder: Embedder) -> None:
    vectors = embedder.embed(["the red dog", "a cat"], ["a", "b"])

    assert (embedder.encode("the red dog", "a") == vectors[0]).all()
    assert (embedder.encode(["the red dog", "a cat"], ["a", "b"]) == vectors).all()
    assert embedder.embed("a cat").shape == (embedder.dimension,)


def test_without_a_model_it_is_the_one_of_the_package() -> None:
    assert Embedder().facts()["model"] == "tidybert-small"
