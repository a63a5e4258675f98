"""tidybert extend-vocab: a MODEL that is shorter in words of its corpus."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tidybert.cli import main as shell
from tidybert.cli.commands import corpus as vocabularies
from tidybert.configuration import BertConfig
from tidybert.inference.loading import load
from tidybert.tokenization import BertTokenizer


@pytest.fixture
def model(tmp_path: Path, tiny_config: Callable[..., BertConfig]) -> Path:
    """A tiny encoder whose vocabulary is ten letters, a word and one unused place."""
    import torch

    from tidybert.checkpoints.tensor_files import write_tensors
    from tidybert.checkpoints.weights import to_huggingface
    from tidybert.modeling import BertModel

    letters = "acdehorstw"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters), "the"]
    config = tiny_config(vocab_size=len(tokens))
    directory = tmp_path / "letters"
    directory.mkdir()
    torch.manual_seed(0)
    write_tensors(directory, to_huggingface(BertModel(config).state_dict(), config))
    (directory / "config.json").write_text(json.dumps(config.to_dict()))
    BertTokenizer(tokens).save(directory)
    return directory


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Thirty documents with words of the vocabulary's letters, and one with a letter it lacks."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(f"the horse {'o' * (1 + n % 2)} saw a zoo" for n in range(30)))
    return path


def extend(model: Path, corpus: Path, out: Path, *flags: str) -> int:
    return shell.run(["extend-vocab", str(model), str(corpus), "--out", str(out), *flags])


def test_json_and_a_model_that_opens(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert extend(model, corpus, out, "--add", "4", "--held-out", "0.2", "--json") == 0
    found = json.loads(capsys.readouterr().out)

    assert [piece["token"] for piece in found["pieces"]] == ["horse", "saw", "z", "oo"]
    assert found["pieces"][0]["replaces"] == ["h", "##o", "##r", "##s", "##e"]
    assert (found["added"], found["appended"]) == (4, 3)
    assert found["before"]["pieces_per_word"] > found["pieces_per_word"]
    assert found["before"]["unknown_rate"] > found["unknown_rate"] == 0
    encoder, tokenizer = load(out)
    assert encoder.config.vocab_size == tokenizer.vocab_size == found["size"]
    assert tokenizer.vocabulary.tokens[5] == "horse"
    assert tokenizer.tokenize("the zoo") == ["the", "z", "##o", "##o"]


def test_a_table_of_pieces_and_one_of_figures(
    model: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vocabularies, "SHOWN_PIECES", 1)
    assert extend(Path("letters"), corpus, Path("one"), "--add", "1") == 0
    found = capsys.readouterr()
    assert ("more" in found.out, "fewer than" in found.err) == (False, False)

    assert extend(Path("letters"), corpus, Path("out"), "--add", "99") == 0
    found = capsys.readouterr()
    lines = found.out.splitlines()
    assert lines[2].split()[:6] == ["horse", "h", "##o", "##r", "##s", "##e"]
    assert lines[3].startswith("and ")
    assert [line.split()[0] for line in lines[-2:]] == ["letters", "out"]
    assert "tokens, fewer than the 99 asked for: no other would save three" in found.err
    assert "1 in [unused] places, " in found.err


@pytest.mark.parametrize(
    ("name", "flags", "status", "message"),
    [
        ("letters", ["--add", "0"], 2, "--add"),
        ("mini", ["--add", "1"], 1, "'mini' is a size with random weights"),
        ("letters", ["--add", "1", "--held-out", "2"], 2, "--held-out 2"),
        ("letters", ["--add", "1", "--out", "letters"], 2, "--out letters is there already"),
        ("letters", ["--add", "1"], 1, "corpus.txt:2: byte 0xff"),
    ],
)
def test_errors(
    model: Path,
    tmp_path: Path,
    name: str,
    flags: list[str],
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_bytes(b"good\n\xff\n")

    assert shell.run(["extend-vocab", name, "corpus.txt", "--out", "out", *flags]) == status
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_corpus_that_needs_no_piece(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.txt").write_text("the a the")

    assert extend(model, tmp_path / "corpus.txt", tmp_path / "out", "--add", "9") == 1
    assert "no token would shorten this corpus" in capsys.readouterr().err


@pytest.mark.real_data
@pytest.mark.weights
def test_real_weights_and_real_text(
    minilm_directory: Path, real_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    from tidybert.corpus.documents import read_documents
    from tidybert.modeling import Rows

    corpus = real_data / "corpus/wiki-short-00.txt.xz"
    documents = list(islice(read_documents([corpus]), 2000))
    path, out = tmp_path / "corpus.txt", tmp_path / "out"
    path.write_text("\n\n".join("\n".join(one) for one in documents), encoding="utf-8")
    flags = ("--add", "1200", "--held-out", "0.1", "--json")
    assert extend(minilm_directory, path, out, *flags) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["added"], found["appended"]) == (1200, 1200 - 994)
    assert found["pieces_per_word"] < found["before"]["pieces_per_word"]

    lines = [line for document in documents for line in document][:1000]
    encoder, tokenizer = load(out)
    old_encoder, old_tokenizer = load(minilm_directory)
    ids = tokenizer.encode_batch(lines)
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    assert theirs(lines)["input_ids"] == [one.tolist() for one in ids]
    unchanged = [
        new
        for new, old in zip(ids, old_tokenizer.encode_batch(lines), strict=True)
        if new.tolist() == old.tolist() and len(new) < 32
    ][:8]
    assert len(unchanged) == 8
    with torch.inference_mode():
        outputs = [model(Rows.from_lists(unchanged)) for model in (encoder, old_encoder)]
    assert torch.equal(outputs[0].last_hidden_state, outputs[1].last_hidden_state)
