"""Words on disk: BM25 as its formula, the same bytes after a stop, few segments, old indexes."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.search.test_index_writer import contents, stopped

from tidybert.errors import UsageError
from tidybert.files.text_examples import TextExample
from tidybert.search import postings
from tidybert.search.index import Index, standing
from tidybert.search.index_files import compact_index, delete_texts
from tidybert.search.words import words_of
from tidybert.system.reporter import SILENT, Reporter

Make = Callable[..., Path]
Examples = list[TextExample]


def bm25(texts: Sequence[str | None], query: str) -> list[float]:
    """Robertson's formula with Lucene's idf, k1 1.5 and b 0.75; None is a text that is deleted."""
    counts = [None if text is None else Counter(words_of(text)) for text in texts]
    live = [each for each in counts if each is not None]
    mean = sum(map(Counter.total, live)) / len(live)
    found = [0.0] * len(texts)
    for word, times in Counter(words_of(query)).items():
        num = sum(word in each for each in live)
        idf = math.log(1 + (len(live) - num + 0.5) / (num + 0.5))
        for at, each in enumerate(counts):
            if each is not None and word in each:
                norm = 1.5 * (0.25 + 0.75 * each.total() / mean)
                found[at] += times * idf * each[word] / (each[word] + norm)
    return found


def search_of(texts: Sequence[str], is_live: Any) -> postings.WordSearch:
    last, segments, rows = postings.Segment(), [], []
    for count, each in postings.segments_of(texts):
        last = last.next(last.texts[1], count, each)
        segments.append(last)
        rows.append(each)
    arrays = {name: np.concatenate([each[name] for each in rows]) for name in postings.FILES}
    return postings.WordSearch(segments, arrays, is_live)


@pytest.mark.parametrize("most_texts", [2**16, 64])
def test_scores_are_those_of_the_formula(most_texts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words as frequent as in language, so that some texts are left out before the last word."""
    monkeypatch.setattr(postings, "_MOST_TEXTS", most_texts)
    pruned = []
    hopeful = postings._hopeful

    def noted(*given: Any) -> Any:
        found = hopeful(*given)
        pruned.append(found is not None)
        return found

    monkeypatch.setattr(postings, "_hopeful", noted)
    draw = np.random.default_rng(0)
    words = [f"w{number}" for number in range(400)]
    shares = 1 / np.arange(1, 401)
    texts = [
        " ".join(draw.choice(words, draw.integers(0, 30), p=shares / shares.sum()))
        for _ in range(300)
    ]
    is_live = draw.random(300) > 0.2
    search = search_of(texts, is_live)
    kept = [text if live else None for text, live in zip(texts, is_live, strict=True)]
    for number in range(40):
        query = " ".join([*draw.choice(words, 3), "w0", "w1", "w1", "none"])
        expected = np.array(bm25(kept, query))
        allowed = None if number % 2 else is_live & (draw.random(300) > 0.3)
        counted = is_live if allowed is None else allowed
        order = np.lexsort((np.arange(300), -expected))
        order = order[(expected[order] > 0) & counted[order]][:7]
        positions, scores = search.best(query, 7, allowed)
        assert np.allclose(scores, expected[order], atol=1e-5)
        assert np.allclose(expected[positions], scores, atol=1e-5)
        assert counted[positions].all()
    assert any(pruned)
    assert len(search.best("none", 7)[0]) == 0


def test_equal_texts_are_in_their_order_and_many_of_a_word_count() -> None:
    search = search_of(["cat dog", "cow", "cat dog", "cat " * 300], np.ones(4, dtype=bool))

    assert search.best("dog", 4)[0].tolist() == [0, 2]
    assert search.best("cat", 4)[0].tolist() == [3, 0, 2]


@pytest.mark.parametrize("number", [0, 3, 9])
def test_words_have_the_same_bytes_after_a_stop(
    make_index: Make, examples: Examples, number: int
) -> None:
    """Also where the stop came before a segment was made again."""
    for name in ("whole", "other"):
        make_index(name, examples[:8])
    whole = contents(make_index("whole"))

    with pytest.raises(KeyboardInterrupt):
        make_index("other", stopped(examples, 8 + number))
    assert contents(make_index("other")) == whole


def test_counting_words_says_how_far_it_is(make_index: Make, examples: Examples) -> None:
    heard: list[tuple[str, int, int]] = []
    reporter = Reporter(stage=lambda *told: heard.append(told))
    make_index(texts=examples[:10], words=False, reporter=reporter)
    assert heard == []

    make_index(texts=examples[:10], words=True, reporter=reporter)

    assert heard == [("counting words", done, 10) for done in (0, 4, 8, 10)]


@pytest.mark.parametrize("change", ["add words", "compact"])
def test_a_stop_between_two_segments_costs_nothing(
    change: str, make_index: Make, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "_MOST_TEXTS", 4)
    monkeypatch.setattr("tidybert.search.index_files._COPIED_AT_ONCE", 4)

    def changed(name: str, reporter: Reporter = SILENT) -> Path:
        if change == "compact":
            compact_index(directories[name], reporter)
            return directories[name]
        return make_index(name, words=True, id_column="id", reporter=reporter)

    def stopping(_name: str, done: int, _total: int) -> None:
        if done == 8:
            # Two segments are written.
            raise KeyboardInterrupt

    directories = {
        name: make_index(name, words=change == "compact", id_column="id")
        for name in ("whole", "other")
    }
    if change == "compact":
        for each in directories.values():
            delete_texts(each, ["n2"])
    whole = contents(changed("whole"))
    before = {hit.id for hit in Index(directories["other"]).texts(range(22))}

    with pytest.raises(KeyboardInterrupt):
        changed("other", Reporter(stage=stopping))

    other = Index(directories["other"])
    assert {hit.id for hit in other.texts(range(22))} == before
    assert other.ranking(None) == (None if change == "compact" else "meaning")
    assert contents(changed("other")) == whole


def test_additions_leave_few_segments_and_compacting_gives_their_space_back(
    make_index: Make, examples: Examples
) -> None:
    for count in range(1, 23):
        directory = make_index(texts=examples[:count])
    index, fresh = Index(directory), Index(make_index("fresh"))
    sizes = [each.texts[1] - each.texts[0] for each in index._state.segments or ()]
    assert sum(sizes) == 22
    assert len(sizes) <= 5
    assert index._state.num_old_postings > 0
    for query in ("a red cat", "the dog saw a blue cow"):
        found = [each._words.best(query, 22) for each in (index, fresh)]
        assert found[0][0].tolist() == found[1][0].tolist()
        assert found[0][1].tolist() == found[1][1].tolist()

    assert compact_index(directory) == 0
    assert Index(directory)._state.num_old_postings == 0
    assert (directory / "postings-1.npy").stat().st_size == (
        fresh.directory / "postings.npy"
    ).stat().st_size


def test_replaced_and_deleted_texts_are_not_found_by_their_words(
    make_index: Make, examples: Examples
) -> None:
    directory = make_index(id_column="id")
    wanted = [replace(examples[0], text="AB-1234 is late"), *examples[1:]]
    make_index(texts=wanted, id_column="id", replacing=True)
    delete_texts(directory, ["n2"])

    def scores(index: Index) -> dict[str, float]:
        positions, found = index._words.best(f"ab-1234 {examples[1].text}", 50)
        ids = [hit.id for hit in index.texts(positions)]
        return dict(zip(ids, found.tolist(), strict=True))

    before = scores(Index(directory))
    assert max(before, key=lambda each: before[each]) == "n1"
    assert "n2" not in before
    live = [one.text if one.columns != {"id": "n2", "size": 2} else None for one in wanted]
    expected = bm25(live, f"ab-1234 {examples[1].text}")
    named = {f"n{at}": value for at, value in enumerate(expected, 1) if value > 0}
    assert before == pytest.approx(named, abs=1e-5)
    compact_index(directory)
    assert scores(Index(directory)) == pytest.approx(named, abs=1e-5)


def test_an_index_without_words_has_todays_bytes_and_gets_them_when_asked(
    make_index: Make, examples: Examples
) -> None:
    directory = make_index(texts=examples[:10], words=False)
    assert {path.name for path in directory.iterdir()} == {
        "index.json", "vectors.npy", "texts.arrow"
    }  # fmt: skip
    content = (directory / "index.json").read_text()
    assert '"index_version": 2' in content
    assert "segments" not in content
    make_index()
    index = Index(directory)
    assert index.ranking(None) == "meaning"
    with pytest.raises(UsageError, match=r"has no words to search by: .* with --words"):
        index.ranking("words")

    make_index(words=True)

    assert Index(directory)._words.best("cat", 3)[1].min() > 0
    fresh = contents(make_index("fresh"))
    assert all(contents(directory)[name] == fresh[name] for name in postings.FILES)
    with pytest.raises(UsageError, match="has words, which stay: name a new directory"):
        make_index(words=False)


def test_both_rankings_are_fused_and_each_can_be_asked_alone(
    make_index: Make, examples: Examples
) -> None:
    texts = [*examples, TextExample("a cow AB-1234", None, None, 23, columns={"id": "n23"})]
    index = Index.open(make_index(texts=texts, id_column="id"))

    hits = index.search("where is ab-1234", 23)
    by_words = index.search("where is ab-1234", 23, by="words")
    by_meaning = index.search("where is ab-1234", 23, by="meaning")

    assert hits[0].position == by_words[0].position == 22
    assert [hit.rank_words for hit in by_words] == list(range(1, len(by_words) + 1))
    assert by_words[0].to_dict().keys() - by_meaning[0].to_dict().keys() == {"rank_words"}
    places = {hit.position: rank for rank, hit in enumerate(by_meaning, 1)}
    cosines = {hit.position: hit.score for hit in by_meaning}
    fused = [hit.fused or 0.0 for hit in hits]
    assert fused == sorted(fused, reverse=True)
    assert {hit.position: hit.rank_meaning for hit in hits} == places
    assert {hit.position: hit.score for hit in hits} == cosines
    assert {"rank_words", "rank_meaning", "fused"} < hits[5].to_dict().keys()
    near = standing(np.array([hit.score for hit in by_meaning], dtype=np.float32), 0)
    best = hits[0]
    assert best.rank_meaning is not None
    assert best.fused is not None
    assert best.fused > near[best.rank_meaning - 1]
    assert [hit.id for hit in index.search("cow", 5, where="id=n23")] == ["n23"]


def test_a_ranking_that_tells_nothing_apart_adds_nothing() -> None:
    assert standing(np.ones(5, dtype=np.float32), 5).tolist() == [0] * 5
    assert standing(np.zeros(0, dtype=np.float32), 0).tolist() == []
    alone = standing(np.array([2.0], dtype=np.float32), 10)
    assert alone == pytest.approx([3**1.5])


@pytest.mark.parametrize("by", [None, "words"])
def test_of_a_document_its_best_passage_is_found(make_index: Make, embedder: Any, by: Any) -> None:
    from tidybert.inference.passages import text_passages

    texts = [
        TextExample("the old dog . we saw a hen . B-52 was near", None, None, 1),
        TextExample("a red cat . the blue cow", None, None, 2),
    ]
    parts = list(text_passages(texts, embedder.tokenizer, 5, 5))
    index = Index.open(make_index(texts=parts, passages=5, passage_stride=5))

    hits = index.search("b-52", 2, by=by)

    assert "B-52" in hits[0].text
    assert hits[0].columns["start"] > 0
    assert len({hit.id for hit in hits}) == len(hits) == (2 if by is None else 1)
