"""Token shards: what was written is read, and a damaged or foreign file is a clear error."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.corpus.token_shards import TokenCorpus, is_corpus, read_manifest, verify_files
from tidybert.errors import DataError

DOCUMENTS = [[[5, 6, 7], [8]], [[9, 9]], [[10], [11, 12], [13, 14, 15, 16]]]

Ids = list[list[int]]
WriteCorpus = Callable[..., Path]


@pytest.fixture
def directory(tmp_path: Path, write_corpus: WriteCorpus) -> Path:
    return write_corpus(tmp_path / "corpus", DOCUMENTS, [[[20]]])


def read_back(corpus: TokenCorpus) -> list[Ids]:
    bounds, counts = corpus.sentence_bounds(np.arange(corpus.num_documents))
    documents = []
    for of_document in np.split(bounds, np.cumsum(counts)[:-1]):
        tokens = corpus.tokens(of_document[:-1], of_document[1:])
        documents.append([ids.tolist() for ids in tokens])
    return documents


def test_a_corpus_is_read_as_it_was_written(directory: Path) -> None:
    corpus = TokenCorpus(directory)

    assert read_back(corpus) == DOCUMENTS
    assert (corpus.num_documents, corpus.num_sentences, corpus.num_tokens) == (3, 6, 13)
    assert corpus.tokens(np.array([3]), np.array([4]))[0].dtype == np.uint16
    assert corpus.document_ends(np.array([2, 0, 1])).tolist() == [13, 4, 6]
    assert read_back(TokenCorpus(directory, "held-out")) == [[[20]]]
    assert TokenCorpus(directory).tokenizer().vocab_size == 1000


def test_what_lies_on_the_disk(directory: Path) -> None:
    names = [f"train-00000.{suffix}" for suffix in ("tokens", "sentences", "documents")]
    tokens, sentences, documents = (directory / name for name in names)

    assert np.fromfile(tokens, "<u2").tolist() == [*range(5, 9), 9, 9, *range(10, 17)]
    assert np.fromfile(sentences, "<u4").tolist() == [0, 3, 4, 6, 7, 9, 13]
    assert np.fromfile(documents, "<u4").tolist() == [0, 2, 3, 6]


documents = st.lists(
    st.lists(st.lists(st.integers(5, 999), min_size=1, max_size=6), min_size=1, max_size=5),
    min_size=1,
    max_size=12,
)


@settings(max_examples=20)
@given(documents, st.integers(1, 40))
def test_a_round_trip_through_any_number_of_shards(
    tmp_path_factory: pytest.TempPathFactory,
    write_corpus: WriteCorpus,
    documents: list[Ids],
    max_shard_tokens: int,
) -> None:
    directory = tmp_path_factory.mktemp("corpora") / "corpus"
    write_corpus(directory, documents, max_shard_tokens=max_shard_tokens)
    corpus = TokenCorpus(directory)

    assert read_back(corpus) == documents
    corpus.verify()
    for shard in corpus.shards[:-1]:
        assert shard.num_tokens >= max_shard_tokens
    # Documents in any order, some of them twice.
    chosen = np.array([*range(len(documents) - 1, -1, -1), 0])
    bounds, counts = corpus.sentence_bounds(chosen)
    assert counts.tolist() == [len(documents[number]) + 1 for number in chosen]
    ends = np.cumsum(counts)
    ids = corpus.tokens(bounds[ends - counts], bounds[ends - 1])
    assert corpus.document_ends(chosen).tolist() == bounds[ends - 1].tolist()
    flat = [[each for sentence in documents[number] for each in sentence] for number in chosen]
    assert [each.tolist() for each in ids] == flat


def test_a_large_vocabulary_takes_four_bytes_a_token(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    directory = write_corpus(tmp_path / "corpus", [[[5, 69_999]]], vocab_size=70_000)

    assert read_back(TokenCorpus(directory)) == [[[5, 69_999]]]
    assert (directory / "train-00000.tokens").stat().st_size == 8


def test_a_part_may_be_empty(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    corpus = TokenCorpus(write_corpus(tmp_path / "corpus", DOCUMENTS), "held-out")

    assert (corpus.num_documents, corpus.num_tokens) == (0, 0)
    corpus.verify()


def test_a_corpus_travels_to_another_process(directory: Path) -> None:
    corpus = TokenCorpus(directory, "held-out")
    assert read_back(corpus) == [[[20]]]

    sent = pickle.dumps(corpus)

    assert len(sent) < 1000
    assert read_back(pickle.loads(sent)) == [[[20]]]


def test_opening_reads_corpus_json_alone_and_maps_a_shard_when_it_is_used(
    tmp_path: Path, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_corpus(tmp_path / "corpus", [[[5]], [[6]], [[7]]], max_shard_tokens=1)
    mapped: list[str] = []
    memmap = np.memmap

    def watch(path: Path, *given: Any) -> Any:
        mapped.append(path.name)
        return memmap(path, *given)

    monkeypatch.setattr(np, "memmap", watch)
    corpus = TokenCorpus(directory)
    assert mapped == []
    for _ in range(2):
        assert corpus.tokens(np.array([1]), np.array([2]))[0].tolist() == [6]
    assert mapped == ["train-00001.tokens"]


# --- faults


def test_a_folder_that_is_no_corpus(tmp_path: Path) -> None:
    assert not is_corpus(tmp_path)
    with pytest.raises(DataError, match=r"not a corpus: it has no corpus.json; make one with"):
        TokenCorpus(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "corpus.json is damaged: not valid JSON"),
        ("[]", "a JSON object was expected, not list; copy the corpus again"),
        ('{"format": "other"}', "not written by tidybert build-corpus"),
        ('{"format": "tidybert-corpus", "format_version": 9}', "format version 9, and this"),
        (
            '{"format": "tidybert-corpus", "format_version": 1}',
            "corpus.json is damaged: missing key 'settings'",
        ),
    ],
)
def test_a_foreign_or_damaged_manifest(directory: Path, text: str, message: str) -> None:
    (directory / "corpus.json").write_text(text)
    with pytest.raises(DataError) as raised:
        read_manifest(directory)
    assert message in str(raised.value)


@pytest.mark.parametrize("suffix", ["tokens", "sentences", "documents"])
def test_a_file_of_another_size(directory: Path, suffix: str) -> None:
    path = directory / f"train-00000.{suffix}"
    content = path.read_bytes()
    path.write_bytes(content[:-2])
    with pytest.raises(DataError) as raised:
        TokenCorpus(directory)
    assert str(raised.value).startswith(
        f"{path}: {len(content) - 2} bytes where corpus.json says {len(content)}; it is cut short"
    )


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("parts/train/0/num_tokens", "13"),
        ("parts/train/0/num_tokens", 2**40),
        ("parts/train/0/num_documents", True),
        ("parts/train/0/name", "../train-00000"),
        ("parts/train/0/sha256", {}),
        ("parts/train/0/sha256/tokens", "no hash"),
        ("parts/train", {"0": None}),
        ("settings/vocabulary", None),
        ("settings/vocabulary/dtype", "<f8"),
        ("settings/vocabulary/vocab_size", 0),
        ("settings/vocabulary/sha256", 5),
        ("sources/0/train", 2),
        ("sources/0/file", None),
        ("sources", 1),
        ("counts", 5),
    ],
)
def test_a_manifest_that_says_what_cannot_be(directory: Path, place: str, value: object) -> None:
    path = directory / "corpus.json"
    content = found = json.loads(path.read_text())
    *way, last = place.split("/")
    for name in way:
        found = found[int(name)] if isinstance(found, list) else found[name]
    found[last] = value
    path.write_text(json.dumps(content))

    with pytest.raises(DataError, match=r"corpus\.json is damaged: "):
        TokenCorpus(directory)


@pytest.mark.parametrize(
    ("suffix", "place", "value"),
    [
        *(("sentences", 0, 1), ("sentences", 2, 3), ("sentences", 6, 14), ("sentences", 3, 2**31)),
        *(("documents", 1, 0), ("documents", 3, 7), ("documents", 1, 2**32 - 1)),
    ],
)
def test_bounds_that_do_not_rise_to_the_end_are_not_used(
    directory: Path, suffix: str, place: int, value: int
) -> None:
    path = directory / f"train-00000.{suffix}"
    bounds = np.fromfile(path, "<u4")
    bounds[place] = value
    path.write_bytes(bounds.tobytes())

    with pytest.raises(DataError, match="its numbers do not rise from 0 to ") as raised:
        TokenCorpus(directory).sentence_bounds(np.arange(3))
    assert str(raised.value).startswith(str(path))


def test_an_id_outside_the_vocabulary_is_not_used(directory: Path) -> None:
    with pytest.raises(DataError, match="has the id 1,000, and the vocabulary has 1,000 tokens"):
        TokenCorpus(directory).check_ids(np.array([5, 1000], np.uint16))


def test_only_regular_files_are_opened(directory: Path) -> None:
    for name in ("train-00000.tokens", "corpus.json"):
        (directory / name).unlink()
        os.mkfifo(directory / name)
        with pytest.raises(DataError, match=f"{name}: cannot be read: it is a named pipe"):
            TokenCorpus(directory)


def test_a_tokenizer_of_other_settings_is_not_that_of_the_corpus(directory: Path) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "do_lower_case": False}))
    (directory / "tokenizer.json").unlink(missing_ok=True)

    with pytest.raises(DataError, match=r"tokenizer_config\.json: do_lower_case is False where"):
        TokenCorpus(directory).tokenizer()


def test_files_are_compared_with_their_hashes_on_request(directory: Path) -> None:
    corpus = TokenCorpus(directory)
    files = corpus.hashed_files()
    told: list[tuple[int, int]] = []
    verify_files(files, lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == np.cumsum([file.num_bytes for file in files]).tolist()
    assert {total for _, total in told} == {told[-1][0]}

    # The first of them in order is named.
    for file in reversed(files):
        content = bytearray(file.path.read_bytes())
        content[-1] ^= 1
        file.path.write_bytes(content)
        with pytest.raises(DataError, match=r"its sha256 .* damaged or was exchanged") as raised:
            corpus.verify()
        assert str(raised.value).startswith(str(file.path))
    files[0].path.unlink()
    with pytest.raises(DataError, match=r"train-00000\.tokens: cannot be read: no such file"):
        corpus.verify()
    TokenCorpus(directory, "held-out")
    with pytest.raises(DataError, match=r"no such file, and corpus\.json names it"):
        TokenCorpus(directory)


def test_another_vocabulary_is_no_silent_exchange(
    tmp_path: Path, directory: Path, write_corpus: WriteCorpus
) -> None:
    other = write_corpus(tmp_path / "other", DOCUMENTS, vocab_size=999)
    shutil.copy(other / "vocab.txt", directory)

    with pytest.raises(DataError, match=r"vocab.txt: its sha256 is .* copy the corpus again"):
        TokenCorpus(directory).tokenizer()
