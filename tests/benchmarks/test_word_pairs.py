"""Pairs of words: the sentences, the vectors and the correlation."""

import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scores import words
from tidybert import Embedder, Explainer

SENTENCE = "We saw the red hen and the old dog near a cow."


def test_the_first_sentences_that_have_the_word() -> None:
    sentences = ["a red hen", SENTENCE, "one two three four five six seven redden", SENTENCE * 2]

    found = words.find_contexts(["Red", "hen", "cat"], [*sentences, SENTENCE], 2)

    assert found == {"Red": [SENTENCE, SENTENCE * 2], "hen": [SENTENCE, SENTENCE * 2], "cat": []}


def test_vectors_are_means_over_sentences_and_pieces(tiny_model: Path) -> None:
    explainer, embedder = Explainer(tiny_model), Embedder(tiny_model, layers="all", device="cpu")
    contexts = {"hen": [SENTENCE, "a hen"], "cow": ["a cow"]}

    found = words.layer_vectors(embedder, contexts)
    kinds = dict(words.kinds_of_vectors(str(tiny_model), contexts))

    states = [explainer.hidden_states(text).states for text in contexts["hen"]]
    expected = (states[0][:, 5] + states[1][:, 2]) / 2
    np.testing.assert_allclose(found["hen"], expected, atol=1e-5)
    assert found["cow"].shape == expected.shape
    np.testing.assert_allclose(
        kinds["word embeddings"]["hen"],
        explainer.similarities(["hen", "cow"], layer="words").vectors[0],
    )


def test_the_table_of_a_run(
    run_script: Callable[..., None],
    page: Callable[[str], Path],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path))
    monkeypatch.setattr(words, "SETS", {"Pairs": "pairs.txt"})
    monkeypatch.setattr(words, "CORPUS", "corpus.xz")
    (tmp_path / "pairs.txt").write_text("hen\tcow\t9\nred\told\t1\nhen\tdog\t5.5\nhen\tcat\t1\n")
    with lzma.open(tmp_path / "corpus.xz", "wt") as file:
        file.write(f"title\n{SENTENCE}\n")
    out = page("word-pairs")

    run_script("word_pairs", "--models", str(tiny_model), "--contexts", "1", "--write", out)

    assert "Pairs: 3 of 4 pairs" in capsys.readouterr().out
    _, *rows = out.read_text().split("| model | vectors | Pairs, 3 pairs |\n")[1].splitlines()
    kinds = [row.split(" | ")[1] for row in rows[:5]]
    assert kinds == [
        "word embeddings",
        "the word alone, last layer",
        *(f"in sentences, layer {layer}" for layer in range(3)),
    ]
    assert all(-1 <= float(row.split(" | ")[2].rstrip(" |")) <= 1 for row in rows[:5])


def test_the_score_is_the_correlation_of_the_ranks() -> None:
    angles = {"a": 0.0, "b": 0.1, "c": 1.0, "d": 2.0}
    vectors = {word: np.array([np.cos(each), np.sin(each)]) for word, each in angles.items()}
    pairs = [("a", word, float(score)) for word, score in (("b", 9), ("c", 3), ("d", 2))]

    assert words.spearman(pairs, vectors) == pytest.approx(1)
    assert words.spearman([pairs[0], pairs[2]], vectors) == pytest.approx(1)
    turned = [(first, second, -score) for first, second, score in pairs]
    assert words.spearman(turned, vectors) == pytest.approx(-1)
