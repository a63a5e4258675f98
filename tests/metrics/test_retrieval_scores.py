"""Ranks by hand; scores against trec_eval and sentence-transformers."""

from typing import Any

import numpy as np
import pytest

from tidybert.metrics.retrieval_scores import mean_scores, rank_relevant, retrieval_scores


def search(seed: int, queries: int = 12, texts: int = 300, width: int = 6) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    given, searched = (
        random.normal(size=(number, width)).astype(np.float32) for number in (queries, texts)
    )
    given /= np.linalg.norm(given, axis=1, keepdims=True)
    searched /= np.linalg.norm(searched, axis=1, keepdims=True)
    right = [
        random.choice(texts, random.integers(1, 15), replace=False).tolist() for _ in range(queries)
    ]
    return given, searched, right


def test_ranks_by_hand() -> None:
    texts = np.array([[1, 0], [0.8, 0.6], [0, 1], [0.8, 0.6]], dtype=np.float32)

    found = rank_relevant(np.eye(2, dtype=np.float32), texts, [[2, 0], [3]])

    assert [each.tolist() for each in found.ranks] == [[1, 4], [3]]  # of equal ones the first first
    assert found.nearest.tolist() == [0, 2]
    assert found.best_wrong.tolist() == [1, 2]
    np.testing.assert_allclose(found.best_wrong_score, [0.8, 1.0])
    np.testing.assert_allclose(found.best_right_score, [1.0, 0.6])


def test_a_query_among_the_texts_is_not_found() -> None:
    texts = np.eye(3, dtype=np.float32)

    found = rank_relevant(texts, texts, [[1], [2], [0]], [0, 1, 2])

    assert [each.tolist() for each in found.ranks] == [[1], [2], [1]]


def test_scores_by_hand() -> None:
    found = retrieval_scores([np.array([2, 11]), np.array([1])])

    expected = {
        "accuracy_at_1": [0, 1],
        "recall_at_1": [0, 1],
        "recall_at_10": [0.5, 1],
        "recall_at_100": [1, 1],
        "mrr_at_10": [0.5, 1],
        "ndcg_at_10": [round(np.log(2) / np.log(3) / (1 + np.log(2) / np.log(3)), 4), 1],
        "map": [round((1 / 2 + 2 / 11) / 2, 4), 1],
    }
    assert {name: found[name].round(4).tolist() for name in expected} == expected
    assert mean_scores(found, np.array([3.0, 1.0]))["map"] == pytest.approx(
        (3 * (1 / 2 + 2 / 11) / 2 + 1) / 4
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_they_are_those_of_trec_eval(seed: int) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    queries, texts, right = search(seed)
    judged = {str(q): {f"d{n}": 1 for n in each} for q, each in enumerate(right)}
    run = {
        str(q): {f"d{n}": float(score) for n, score in enumerate(queries[q] @ texts.T)}
        for q in range(len(queries))
    }
    names = {"map", "ndcg_cut.10", "recall.1,10,100"}
    expected = pytrec_eval.RelevanceEvaluator(judged, names).evaluate(run)

    found = retrieval_scores(rank_relevant(queries, texts, right).ranks)

    ours_of = {"ndcg_cut_10": "ndcg_at_10", "map": "map"}
    ours_of |= {f"recall_{k}": f"recall_at_{k}" for k in (1, 10, 100)}
    for name, ours in ours_of.items():
        theirs = [expected[str(q)][name] for q in range(len(queries))]
        np.testing.assert_allclose(found[ours], theirs, atol=1e-7)


def test_they_are_those_of_sentence_transformers() -> None:
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    queries, texts, right = search(3)
    evaluator = evaluation.InformationRetrievalEvaluator(
        {str(q): str(q) for q in range(len(queries))},
        {str(n): str(n) for n in range(len(texts))},
        {str(q): set(map(str, each)) for q, each in enumerate(right)},
        accuracy_at_k=[1],
        precision_recall_at_k=[1, 10, 100],
        mrr_at_k=[10],
        ndcg_at_k=[10],
        map_at_k=[len(texts)],
        score_functions={"cosine": lambda a, b: a @ b.T},
    )
    ranked = np.argsort(-(queries @ texts.T), axis=1, kind="stable")
    results = [
        [{"corpus_id": str(n), "score": -place} for place, n in enumerate(each)] for each in ranked
    ]
    expected = evaluator.compute_metrics(results)

    found = mean_scores(retrieval_scores(rank_relevant(queries, texts, right).ranks))

    assert found["accuracy_at_1"] == pytest.approx(expected["accuracy@k"][1])
    for k in (1, 10, 100):
        assert found[f"recall_at_{k}"] == pytest.approx(expected["recall@k"][k])
    assert found["mrr_at_10"] == pytest.approx(expected["mrr@k"][10])
    assert found["ndcg_at_10"] == pytest.approx(expected["ndcg@k"][10])
    assert found["map"] == pytest.approx(expected["map@k"][len(texts)])
