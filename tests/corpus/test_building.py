"""build_corpus: what becomes of the documents, the same bytes by any way, and clear errors."""

import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.corpus import building as module
from tidybert.corpus.building import Built, build_corpus
from tidybert.corpus.documents import CorpusOptions, CorpusReport
from tidybert.corpus.screening import digests_of, shares
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.corpus.tokenizing import split_sentences
from tidybert.errors import DataError, UsageError
from tidybert.storage.json_objects import json_checksum
from tidybert.tokenization import BertTokenizer

Documents = list[list[str]]
BytesOf = Callable[[Path], dict[str, str]]


@pytest.fixture
def sources(
    tmp_path: Path,
    make_documents: Callable[..., Documents],
    text_of: Callable[[Documents], str],
) -> Path:
    """Three files of three formats, a hundred documents, the last file repeating ten of them."""
    folder = tmp_path / "sources"
    folder.mkdir()
    documents = make_documents(90)
    (folder / "a.txt.xz").write_bytes(lzma.compress(text_of(documents[:40]).encode()))
    (folder / "b.txt").write_text(text_of(documents[40:70]))
    lines = [json.dumps({"text": "\n".join(each)}) for each in documents[70:] + documents[35:45]]
    (folder / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few documents, each synced: the ways of a large corpus on a small one."""
    monkeypatch.setattr("tidybert.corpus.building.BLOCK_CHARACTERS", 600)
    monkeypatch.setattr(module, "SYNC_SECONDS", -1.0)


def texts_of(directory: Path, part: str = "train") -> list[list[str]]:
    """Sentences of each document, as the tokenizer spells them."""
    corpus = TokenCorpus(directory, part)  # type: ignore[arg-type]
    tokenizer = corpus.tokenizer()
    bounds, counts = corpus.sentence_bounds(np.arange(corpus.num_documents))
    documents = []
    for one in np.split(bounds, np.cumsum(counts)[:-1]):
        ids = corpus.tokens(one[:-1], one[1:])
        documents.append([tokenizer.decode(each) for each in ids])
    return documents


def test_a_corpus_holds_the_sentences_of_its_documents(
    tmp_path: Path, tokenizer: BertTokenizer
) -> None:
    (tmp_path / "a.txt").write_text("Ba can. Ba tom?\nDa fan.\n\nGa lan.\n")

    manifest = build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "out", held_out=0.0)

    assert texts_of(tmp_path / "out") == [["ba can.", "ba tom?", "da fan."], ["ga lan."]]
    assert manifest.counts["documents"] == 2
    (source,) = manifest.sources
    assert (source["documents"], source["train"], source["held-out"]) == (2, 2, 0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "corpus.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "train-00000.documents",
        "train-00000.sentences",
        "train-00000.tokens",
        "vocab.txt",
    ]


def test_duplicates_are_left_out_and_documents_held_out_by_their_text(
    tmp_path: Path,
    tokenizer: BertTokenizer,
    sources: Path,
    make_documents: Callable[..., Documents],
) -> None:
    documents = make_documents(90)
    manifest = build_corpus([sources], tokenizer, tmp_path / "out", held_out=0.3)

    is_held_out = shares(digests_of(documents)[0]) < 0.3
    for part, chosen in (("train", ~is_held_out), ("held-out", is_held_out)):
        expected = [
            [
                tokenizer.decode(tokenizer.encode(sentence).input_ids)
                for paragraph in documents[number]
                for sentence in split_sentences(paragraph)
            ]
            for number in np.flatnonzero(chosen)
        ]
        assert texts_of(tmp_path / "out", part) == expected
    assert manifest.counts["documents"] == 100
    assert manifest.counts["duplicates"] == 10
    assert [source["documents"] for source in manifest.sources] == [40, 30, 30]
    kept = [source["train"] + source["held-out"] for source in manifest.sources]
    assert kept == [40, 30, 20]
    corpus = TokenCorpus(tmp_path / "out")
    files = [Path(corpus.source_of(number)).name for number in range(corpus.num_documents)]
    assert files == sorted(files)
    assert files.count("b.txt") == manifest.sources[1]["train"]


def test_documents_without_tokens_fall_out_and_are_counted(
    tmp_path: Path, tokenizer: BertTokenizer
) -> None:
    (tmp_path / "a.txt").write_text("Ba.\n\n\ufe0f\u200d\n\n\u200d\nCa.\n")

    manifest = build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "out", held_out=0.0)

    assert texts_of(tmp_path / "out") == [["ba."], ["ca."]]
    assert (manifest.counts["documents"], manifest.counts["without_tokens"]) == (3, 1)


# --- the same bytes


def test_bytes_do_not_depend_on_the_number_of_processes(
    tmp_path: Path,
    tokenizer: BertTokenizer,
    sources: Path,
    bytes_of: BytesOf,
    small_blocks: None,
) -> None:
    for workers in (0, 1, 2):
        build_corpus(
            [sources],
            tokenizer,
            tmp_path / str(workers),
            held_out=0.1,
            num_workers=workers,
            max_shard_tokens=700,
        )

    assert bytes_of(tmp_path / "1") == bytes_of(tmp_path / "2") == bytes_of(tmp_path / "0")
    assert len(TokenCorpus(tmp_path / "0").shards) > 3


class Stopped(Exception):
    """Stands for a stop of any kind."""


def stop_after(blocks: int) -> Callable[[Built], None]:
    left = blocks

    def count(built: Built) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Stopped

    return count


@pytest.mark.parametrize("sync_seconds", [-1.0, 1e9])
def test_bytes_do_not_depend_on_stops(
    tmp_path: Path,
    tokenizer: BertTokenizer,
    sources: Path,
    bytes_of: BytesOf,
    small_blocks: None,
    monkeypatch: pytest.MonkeyPatch,
    sync_seconds: float,
) -> None:
    monkeypatch.setattr(module, "SYNC_SECONDS", sync_seconds)
    options: dict[str, Any] = {"held_out": 0.1, "max_shard_tokens": 700}
    whole = build_corpus([sources], tokenizer, tmp_path / "whole", **options)
    stops = 0
    for blocks in (0, 1, 4, 2, 7, 3, 5, 100):
        try:
            stopped = build_corpus(
                [sources], tokenizer, tmp_path / "out", **options, progress=stop_after(blocks)
            )
        except Stopped:
            stops += 1
            # What a kill may leave behind what was synced.
            state = json.loads((tmp_path / "out" / "progress.json").read_text())["parts"]
            for part in filter(None, (each["open"] for each in state.values())):
                with (tmp_path / "out" / f"{part['name']}.tokens").open("ab") as file:
                    file.write(b"xyz")
            (tmp_path / "out" / "train-00099.tokens").write_bytes(b"abc")

    assert stops == 7
    assert stopped == whole
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")


KILLED = """
import os, signal, sys
from pathlib import Path
from tidybert.corpus import building as corpus
from tidybert.tokenization import BertTokenizer

corpus.BLOCK_CHARACTERS, corpus.SYNC_SECONDS = 600, -1.0
blocks = 0

def kill(built):
    global blocks
    blocks += 1
    if blocks == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    corpus.build_corpus(
        [sys.argv[1]],
        BertTokenizer.from_pretrained(sys.argv[2]),
        sys.argv[3],
        num_workers=int(sys.argv[5]),
        progress=kill,
    )
"""


def in_folder(folder: Path) -> list[Path]:
    """The processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            found += [path] * (path.readlink() == folder)
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_a_build_that_was_killed_leaves_no_process_and_goes_on(
    tmp_path: Path, tokenizer: BertTokenizer, sources: Path, bytes_of: BytesOf
) -> None:
    build_corpus([sources], tokenizer, tmp_path / "whole")
    tokenizer.save(tmp_path / "vocab")
    (tmp_path / "killed.py").write_text(KILLED)
    out = tmp_path / "out"
    for workers, blocks in (("2", "9"), ("0", "12")):
        done = subprocess.run(
            [sys.executable, "killed.py", sources, "vocab", out, blocks, workers],
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        progress = json.loads((out / "progress.json").read_text())
        assert progress["num_digests"] > 5
        deadline = time.monotonic() + 10
        while in_folder(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not in_folder(tmp_path)

    build_corpus([sources], tokenizer, out)

    assert bytes_of(out) == bytes_of(tmp_path / "whole")


def test_a_finished_corpus_is_left_alone(
    tmp_path: Path, tokenizer: BertTokenizer, sources: Path, bytes_of: BytesOf
) -> None:
    first = build_corpus([sources], tokenizer, tmp_path / "out")
    before = bytes_of(tmp_path / "out")

    assert build_corpus([sources], tokenizer, tmp_path / "out") == first
    with pytest.raises(
        UsageError,
        match=r"holds a finished corpus .*\n  held_out: 0.005 before",
    ):
        build_corpus([sources], tokenizer, tmp_path / "out", held_out=0.2)
    # A file edited to the same size at the same time is another one.
    source = sources / "b.txt"
    times, text = source.stat(), source.read_text()
    source.write_text(text.swapcase())
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(UsageError, match=r"a finished corpus .*\n  file .*b\.txt: changed"):
        build_corpus([sources], tokenizer, tmp_path / "out")
    assert bytes_of(tmp_path / "out") == before


def test_a_file_may_have_a_name_that_is_not_utf_8(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    source = tmp_path / os.fsdecode(b"caf\xe9.txt")
    source.write_text("Ba can.\n")

    manifest = build_corpus([source], tokenizer, tmp_path / "out", held_out=0.0)

    assert manifest.sources[0]["file"].endswith(r"caf\xe9.txt")
    assert build_corpus([source], tokenizer, tmp_path / "out", held_out=0.0) == manifest


# --- progress and reports


def test_progress_tells_what_is_read_and_made(
    tmp_path: Path, tokenizer: BertTokenizer, sources: Path, small_blocks: None
) -> None:
    told: list[Built] = []
    report = CorpusReport()

    build_corpus([sources], tokenizer, tmp_path / "out", report=report, progress=told.append)

    total = sum(path.stat().st_size for path in sources.iterdir())
    assert {built.total_bytes for built in told} == {total}
    assert told[-1].bytes_read == total
    for name in ("bytes_read", "num_bytes", "num_documents", "num_tokens"):
        values = [getattr(built, name) for built in told]
        assert values == sorted(values)
    assert told[-1].num_documents == 90
    assert (report.num_files, report.num_documents) == (3, 100)


def test_empty_files_are_told_and_an_empty_corpus_is_an_error(
    tmp_path: Path, tokenizer: BertTokenizer
) -> None:
    (tmp_path / "a.txt").write_text("\n\n")
    with pytest.raises(DataError, match="the corpus holds no document"):
        build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "none")

    (tmp_path / "b.txt").write_text("Ba.\n")
    report = CorpusReport()
    build_corpus(
        [tmp_path / "a.txt", tmp_path / "b.txt"], tokenizer, tmp_path / "out", report=report
    )
    assert report.lines() == [f"no document in {tmp_path / 'a.txt'}"]


def test_bad_lines_stop_a_build_and_can_be_passed_over_from_there(
    tmp_path: Path, tokenizer: BertTokenizer, sources: Path, small_blocks: None
) -> None:
    bad = sources / "b.txt"
    bad.write_bytes(bad.read_bytes() + b"\nDa \xff.\n\nGa.\n")
    with pytest.raises(DataError, match=r"b.txt: 1 line cannot be read") as raised:
        build_corpus([sources], tokenizer, tmp_path / "out")
    assert f"{bad}:" in str(raised.value)

    written = json.loads((tmp_path / "out" / "progress.json").read_text())["num_digests"]
    assert written > 40
    options = CorpusOptions(skip_bad_rows=True)
    told: list[Built] = []
    manifest = build_corpus(
        [sources], tokenizer, tmp_path / "out", options=options, progress=told.append
    )
    assert manifest.counts["num_problems"] == 1
    assert manifest.counts["documents"] == 101
    assert told[0].num_documents > written


# --- faults


def test_what_cannot_be_built(tmp_path: Path, tokenizer: BertTokenizer, sources: Path) -> None:
    for share in (-0.1, 1.0):
        with pytest.raises(UsageError, match=r"held_out .*: expected a fraction from 0 to below 1"):
            build_corpus([sources], tokenizer, tmp_path / "out", held_out=share)
    with pytest.raises(UsageError, match="is not empty, and no corpus was begun there"):
        build_corpus([sources], tokenizer, sources)
    assert len(list(sources.iterdir())) == 3


@pytest.fixture
def stopped(tmp_path: Path, tokenizer: BertTokenizer, sources: Path) -> Path:
    """A build that has only begun."""
    with pytest.raises(Stopped):
        build_corpus([sources], tokenizer, tmp_path / "out", progress=stop_after(0))
    return tmp_path / "out"


def test_a_build_goes_on_with_the_same_settings_only(
    stopped: Path, tokenizer: BertTokenizer, sources: Path
) -> None:
    other = BertTokenizer([*tokenizer.vocabulary.tokens, "more"])
    with pytest.raises(
        UsageError, match=r"begun with other settings.*\n  the vocabulary: .*\n  held"
    ):
        build_corpus([sources], other, stopped, held_out=0.5)
    (sources / "b.txt").write_text("Ba.\n")
    with pytest.raises(UsageError, match=r"corpus begun with .*\n  file .*b\.txt: changed"):
        build_corpus([sources], tokenizer, stopped)


def with_files(files: Any) -> Callable[[str], str]:
    """Other files in progress.json, with the checksum that fits."""

    def change(text: str) -> str:
        content = json.loads(text)
        del content["checksum"]
        content["settings"]["files"] = files
        return json.dumps({**content, "checksum": json_checksum(content)})

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda text: text.replace('"in_file": 0', '"in_file": 1'),
            "its content has another checksum",
        ),
        (lambda _text: "{}", "missing key 'settings'"),
        *((with_files(files), "") for files in ([[]], [""], None, [3])),
    ],
)
def test_a_damaged_progress_is_not_gone_on_with(
    change: Callable[[str], str], said: str, stopped: Path, tokenizer: BertTokenizer, sources: Path
) -> None:
    path = stopped / "progress.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=rf"progress.json is damaged: .*{said}.* build the corpus"):
        build_corpus([sources], tokenizer, stopped)
