"""``tidybert build-corpus`` and ``tidybert inspect`` of what it built."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tidybert.cli.commands import corpus as command
from tidybert.cli.main import run
from tidybert.corpus import building
from tidybert.corpus.building import Built
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.system import terminal

TEXT = "The red cat saw a dog. It was old and near.\nWe saw the blue hen.\n\n"
OTHERS = [
    f"A {colour} {animal} is under the cow. We saw it and the {animal}.\n\n"
    for colour in ("red", "green", "blue", "white", "black", "old")
    for animal in ("cat", "dog", "hen")
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT + "".join(OTHERS) + TEXT)
    return path


@pytest.fixture
def corpus(tmp_path: Path, source: Path, tiny_model: Path, capsys) -> str:
    out = str(tmp_path / "built")
    given = ["build-corpus", str(source), "--vocab", str(tiny_model), "--held-out", "0"]
    assert run([*given, "--out", out]) == 0
    capsys.readouterr()
    return out


def test_a_corpus_is_built_and_told_of(
    tmp_path: Path, source: Path, tiny_model: Path, capsys
) -> None:
    given = ["build-corpus", str(source), "--vocab", str(tiny_model)]
    given += ["--out", str(tmp_path / "out"), "--held-out", "0.3"]

    assert run(given) == 0
    out, err = capsys.readouterr()
    corpus, apart = (TokenCorpus(tmp_path / "out", part) for part in ("train", "held-out"))
    assert corpus.num_documents + apart.num_documents == 19
    rows = [line.split() for line in out.splitlines()]
    assert ["train", *map(str, (corpus.num_documents, corpus.num_sentences))] == rows[2][:3]
    assert "20 documents read: 1 had come before, 0 had no token" in out
    assert f"next: tidybert inspect {tmp_path / 'out'}" in err

    assert run([*given, "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["counts"]["duplicates"] == 1
    assert result["parts"]["held-out"]["documents"] == apart.num_documents
    assert "is finished: there is nothing to do" in err


def test_at_least_eight_documents_are_held_out(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("cat " * (n + 1) for n in range(200)) + "\n")
    given = ["build-corpus", str(text), "--vocab", str(tiny_model)]

    assert run([*given, "--out", str(tmp_path / "few")]) == 0
    said = capsys.readouterr().err
    assert "8 documents are held out, the fewest that tidybert measures on" in said
    assert run([*given, "--out", str(tmp_path / "many"), "--held-out", "0.3"]) == 0
    assert "the fewest" not in capsys.readouterr().err
    few, many = (TokenCorpus(tmp_path / name, "held-out") for name in ("few", "many"))
    assert few.num_documents == 8
    assert 30 < many.num_documents < 90
    # The same documents, those of the smallest hashes: few's are among many's.
    few_lengths, many_lengths = (
        set(np.diff(one.document_ends(np.arange(one.num_documents)), prepend=0).tolist())
        for one in (few, many)
    )
    assert few_lengths < many_lengths
    # Again, nothing is to do.
    assert run([*given, "--out", str(tmp_path / "few")]) == 0
    assert "is finished" in capsys.readouterr().err

    text.write_text("\n\n".join(f"the red cat {n}" for n in range(15)) + "\n")
    assert run([*given, "--out", str(tmp_path / "small")]) == 1
    assert "it has 15 documents" in (said := capsys.readouterr().err)
    assert "--held-out 0 to keep none" in said
    assert run([*given, "--out", str(tmp_path / "small"), "--held-out", "0"]) == 0
    assert TokenCorpus(tmp_path / "small", "held-out").num_documents == 0


def test_processes_are_for_corpora_of_some_size(
    tmp_path: Path, source: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []
    build = building.build_corpus

    def watched(*given, num_workers: int, **options):
        chosen.append(num_workers)
        return build(*given, num_workers=0, **options)

    monkeypatch.setattr(building, "build_corpus", watched)
    for name, size, flags in (
        ("a", 10**9, []),
        ("b", 10, []),
        ("c", 10, ["--workers", "0"]),
    ):
        monkeypatch.setattr(command, "SMALL_CORPUS_BYTES", size)
        out = str(tmp_path / name)
        words = ["build-corpus", str(source), "--vocab", str(tiny_model), "--out", out, *flags]
        assert run(words) == 0
    assert chosen == [0, command.available_cores(), 0]


def test_lines_tell_how_far_a_build_is(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 140.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    with command._shown() as show:
        show(Built(0, 1000, 0, 0, 0))
        show(Built(250, 1000, 320_000_000, 4321, 20_000_000))

    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "building: 25%, 4,321 documents, 20.0 M tokens, 8.0 MB/s, 2:00 left"


def test_errors_are_messages(tmp_path: Path, source: Path, tiny_model: Path, capsys) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert run(["build-corpus", str(source), "--vocab", str(tmp_path), *out]) == 1
    assert "has no vocabulary" in capsys.readouterr().err
    vocab = ["--vocab", str(tiny_model)]
    assert run(["build-corpus", str(tmp_path / "none"), *vocab, *out]) == 1
    assert "none: no such file" in capsys.readouterr().err
    assert run(["build-corpus", str(source), *vocab, *out, "--held-out", "1"]) == 2
    assert "--held-out 1: expected a fraction" in capsys.readouterr().err
    assert run(["build-corpus", str(source), *vocab, "--out", str(tiny_model)]) == 2
    assert "is not empty, and no corpus was begun there; name a" in capsys.readouterr().err


# --- inspect


def test_an_instance_in_words(corpus: str, capsys) -> None:
    flags = ["--max-seq-length", "24", "--index", "3"]
    assert run(["inspect", corpus, *flags]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("instance 3 of epoch 0 (train, mlm+nsp, seed 42), ")
    assert "next_sentence_label" in out
    assert "text.txt" in out

    assert run(["inspect", corpus, *flags, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["index"] == 3
    meaning = ("B follows A", "B is from another document")[shown["next_sentence_label"]]
    assert f"next_sentence_label {shown['next_sentence_label']}: {meaning}" in out
    assert f"{len(shown['predictions'])} to predict: " in out
    tokens = shown["tokens"]
    assert tokens[0] == "[CLS]"
    assert tokens.count("[SEP]") == 2
    assert (
        len(tokens)
        == len(shown["token_type_ids"])
        == sum(shown["token_type_ids"]) + (tokens.index("[SEP]") + 1)
    )
    for each in shown["predictions"]:
        assert tokens[each["position"]] == each["became"]
        expected = "kept" if each["became"] == each["token"] else "replaced"
        assert each["what"] == ("masked" if each["became"] == "[MASK]" else expected)
    for segment, start in zip(shown["segments"], (1, tokens.index("[SEP]") + 1), strict=True):
        assert len(segment["text"].split()) <= segment["num_tokens"]
        assert tokens[start] in segment["text"]


def test_every_kind_of_what_becomes_of_a_token_is_named(corpus: str, capsys) -> None:
    found = []
    for index in range(17):
        assert run(["inspect", corpus, "--index", str(index), "--json"]) == 0
        found += json.loads(capsys.readouterr().out)["predictions"]

    assert {each["what"] for each in found} == {"masked", "kept", "replaced"}
    for each in found:
        # A random token may be [MASK], or the one that stood there.
        assert each["what"] != "masked" or each["became"] == "[MASK]"
        assert each["what"] != "kept" or each["became"] == each["token"]


def test_objectives_and_parts(corpus: str, capsys) -> None:
    assert run(["inspect", corpus, "--objective", "mlm", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["next_sentence_label"] is None
    assert [segment["segment"] for segment in shown["segments"]] == ["A"]
    assert run(["inspect", corpus, "--objective", "mlm+sop", "--max-seq-length", "24"]) == 0
    out = capsys.readouterr().out
    assert "A and B are swapped" in out or "A and B are in their order" in out
    assert run(["inspect", corpus, "--part", "held-out"]) == 1
    assert "the part held-out has" in capsys.readouterr().err


def test_the_masks_of_a_text_need_no_corpus(tiny_model: Path, capsys) -> None:
    vocab = ["--vocab", str(tiny_model)]
    words = ["inspect", "--input", "the red cat saw a dog", *vocab]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("instance 0 of epoch 0 (seed 42), 8 tokens")
    assert len(re.findall(r"\b(the|red|cat|saw|a|dog)\b", out.split("position")[0])) >= 5
    assert "1 to predict: " in out
    positions = set()
    for index in range(12):
        assert run([*words, "--index", str(index), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        (one,) = shown["predictions"]
        assert shown["tokens"][one["position"]] == one["became"]
        positions.add(one["position"])
    assert len(positions) > 2
    assert run([*words, "--input", "we saw a hen", "--masked-lm-prob", "0.5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["num_tokens"] for each in shown["segments"]] == [6, 4]
    assert shown["token_type_ids"] == [0] * 8 + [1] * 5
    assert 6 <= len(shown["predictions"]) <= 7


def test_what_cannot_be_inspected(corpus: str, tiny_model: Path, capsys) -> None:
    for words, status, message in (
        ([corpus, "--index", "100000"], 2, "--index 100000: epoch 0 has "),
        ([corpus, "--seed", "-1"], 2, "--seed is -1; expected a whole number from 0"),
        ([corpus, "--part", "dev"], 2, "--part is dev; expected train or held-out"),
        ([corpus, "--objective", "nsp"], 2, "--objective is nsp; expected mlm+nsp"),
        ([str(tiny_model)], 1, "not a corpus: it has no corpus.json"),
        ([], 2, "give a CORPUS, or a text with --input"),
        ([corpus, "--input", "a"], 2, "and not both"),
        ([corpus, "--vocab", str(tiny_model)], 2, "--vocab is for --input"),
        (["--input", " ", "--vocab", str(tiny_model)], 2, "--input is a text without a token"),
        (["--vocab", str(tiny_model), *["--input", "a"] * 3], 2, "--input is given 3 times"),
        (
            ["--vocab", str(tiny_model), "--input", "the cat " * 9, "--max-seq-length", "9"],
            2,
            "--input has 20 tokens; give --max-seq-length 20",
        ),
    ):
        assert run(["inspect", *words]) == status
        assert message in capsys.readouterr().err
