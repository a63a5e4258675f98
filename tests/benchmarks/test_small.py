"""How tidybert-small is made: a smaller vocabulary, and a training with a teacher."""

import json
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch

from benchmarks import pack_model
from benchmarks.scores import words
from benchmarks.small import train
from benchmarks.small.train import (
    Drawn,
    DrawnAhead,
    Sentences,
    Teacher,
    cosines,
    drawn,
    fewer_masks,
    masked_texts,
    with_masks,
)
from tidybert import Embedder, load
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.modeling import Rows
from tidybert.pretraining.batches.masked_rows import MaskedRows
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS

Script = Callable[..., int]
KEPT = 22


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of a few sentences each."""
    words = ("the red cat", "a dog was near", "we saw the dog", "the old cat", "a cat was near")
    documents = [
        "\n".join(f"{words[(at + more * 2) % 5]} {words[at % 5]}." for more in range(4))
        + f"\nnew {at}"
        for at in range(200)
    ]
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture
def folder(tmp_path: Path, texts: Path, tiny_model: Path, run_script: Script) -> Path:
    """What small_prepare writes, with the tiny model as the origin."""
    given = ("--model", tiny_model, "--size", KEPT, "--compare", KEPT, "--held-out", 0.1)
    assert run_script("small_prepare", texts, "--out", tmp_path / "made", *given) == 0
    return tmp_path / "made"


@pytest.fixture
def taught(
    folder: Path, tiny_model: Path, run_script: Script, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Trains into a RUN beside the folder."""
    monkeypatch.setattr(train, "_HELD_OUT", train._PER_BATCH)

    def run(out: str, *more: object) -> int:
        given = {
            "--out": folder.parent / out, "--teacher": tiny_model, "--teacher-sentences": 4,
            "--max-steps": 4, "--eval-steps": 2, "--tokens-per-step": 64, "--max-seq-length": 16,
            "--precision": "float32",
        }  # fmt: skip
        flags = [each for pair in given.items() for each in pair]
        return run_script("small_train", folder, *flags, *more)

    return run


def test_the_start_keeps_characters_and_the_most_frequent_tokens(
    folder: Path, tiny_model: Path
) -> None:
    mine, origin = ModelDirectory(folder / "start"), ModelDirectory(tiny_model)
    kept, known = mine.tokenizer.vocabulary.tokens, origin.tokenizer.vocabulary.tokens
    assert len(kept) == KEPT < len(known)
    assert kept[:5] == known[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    name = "embeddings.word_embeddings.weight"
    mine_rows, rows = read_tensors(folder / "start")[name], read_tensors(tiny_model)[name]
    for number, token in enumerate(kept):
        assert torch.equal(mine_rows[number], rows[known.index(token)]), token


def test_characters_that_occur_come_before_frequent_tokens() -> None:
    tokens = (*SPECIAL_TOKENS, "a", "##a", "b", "##b", "aa", "a##", "bab", "##aa")
    #                         special    a  ##a b ##b aa a## bab ##aa
    counts = np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 9, 0, 8])
    tokenizer = BertTokenizer(tokens)
    kept = [tokens[at] for at in train.kept_tokens(tokenizer, counts, 9)]
    assert kept == [*SPECIAL_TOKENS, "a", "##a", "a##", "##aa"]
    assert [tokens[at] for at in train.kept_tokens(tokenizer, counts, 10)][7] == "aa"


def test_sentences_are_the_same_text_to_student_and_teacher(folder: Path, tiny_model: Path) -> None:
    corpus = TokenCorpus(folder / "corpus")
    sentences = Sentences(corpus, str(tiny_model), 16, seed=3)
    mine, theirs = sentences.draw(7, 30)
    again, _ = sentences.draw(7, 30)
    other, _ = sentences.draw(8, 30)
    assert torch.equal(mine.input_ids, again.input_ids)
    assert mine.lengths != other.lengths or not torch.equal(mine.input_ids, other.input_ids)
    assert len(mine.lengths) == 30
    assert max(mine.lengths) <= 16
    teacher = ModelDirectory(tiny_model).tokenizer
    ends = np.cumsum([0, *theirs.lengths])
    for at, part in enumerate(mine.input_ids.split(list(mine.lengths))):
        text = corpus.tokenizer().decode(part.tolist())
        assert theirs.input_ids[ends[at] : ends[at + 1]].tolist() == list(
            teacher.encode(text).input_ids
        )


def test_the_teachers_vector_is_the_embedders_mean(folder: Path, tiny_model: Path) -> None:
    teacher, tokenizer = Teacher(str(tiny_model), "cpu"), ModelDirectory(tiny_model).tokenizer
    text = "the red cat was near"
    rows = Rows.from_lists([list(tokenizer.encode(text).input_ids)])
    expected = Embedder(tiny_model).embed([text])
    assert teacher.vectors(rows).numpy() == pytest.approx(expected, abs=1e-6)
    encoder, _ = load(tiny_model)
    found = cosines(encoder, rows, torch.from_numpy(np.array(expected)))
    assert found[1].tolist() == pytest.approx([1.0], abs=1e-6)
    last = encoder(rows).pooler_output[0].detach().numpy()
    by_hand = last @ expected[0] / np.linalg.norm(last) / np.linalg.norm(expected[0])
    assert found[0].tolist() == pytest.approx([by_hand], abs=1e-6)


def test_a_taught_run_resumes_with_the_same_bits(
    taught: Callable[..., int], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert taught("whole") == 0
    lines = [json.loads(line) for line in (folder.parent / "whole/metrics.jsonl").open()]
    measured = [line for line in lines if "eval_cls_cosine" in line]
    assert [line["step"] for line in measured] == [2, 4]
    assert {"eval_mean_cosine", "eval_mlm_accuracy", "eval_nsp_accuracy", "eval_cloze_first"} <= (
        measured[0].keys()
    )
    shown = train.tell

    def stop(*given: Any) -> None:
        shown(*given)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(train, "tell", stop)
    assert taught("cut") == 128 + signal.SIGTERM
    monkeypatch.setattr(train, "tell", shown)
    assert taught("cut", "--resume", "--teacher-weight", 3) == 1
    shutil.copytree(tmp_path / "cut", tmp_path / "changed")
    assert taught("changed", "--resume", "--change", "--fewer-share", 0) == 0
    assert taught("cut", "--resume") == 0
    first, second, third = (read_tensors(tmp_path / each) for each in ("whole", "cut", "changed"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)
    recorded = json.loads((folder.parent / "cut/arguments.json").read_text())
    assert recorded["teacher_weight"] == 4.0


def test_a_taught_model_is_packed_with_its_sentence_vectors(
    taught: Callable[..., int], folder: Path, tmp_path: Path, device: str
) -> None:
    assert taught("run", "--device", device) == 0
    packed = pack_model.pack(tmp_path / "run", tmp_path / "packed")
    rows = pack_model.card(tmp_path / "run", tmp_path / "packed", packed)
    assert any("| cosine to the teacher's held-out vectors | mean" in row for row in rows)
    form = read_sentence_form(ModelDirectory(tmp_path / "packed"))
    assert (form.pooling, form.normalize, form.max_seq_length) == ("mean", True, 16)
    theirs = sentence_transformers.SentenceTransformer(
        str(tmp_path / "packed"), device="cpu", model_kwargs={"dtype": "float32"}
    )
    texts = ["the red cat was near", "we saw a dog"]
    found = Embedder(tmp_path / "packed", device="cpu").embed(texts)
    assert found == pytest.approx(theirs.encode(texts), abs=1e-5)
    more = ("--max-steps", 1, "--learning-rate", 1e-9)
    assert taught("more", *more, "--start", tmp_path / "packed") == 0
    before, after = read_tensors(tmp_path / "packed"), read_tensors(tmp_path / "more")
    assert max((after[name] - before[name]).abs().max().item() for name in before) < 1e-5


def test_held_out_tokens_are_masked_one_at_a_time(
    taught: Callable[..., int], folder: Path, tiny_model: Path, tmp_path: Path, run_script: Script,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    places, rows = words.masked(np.arange(10, 30), 4, np.random.default_rng(0))
    assert len(places) == len(set(places)) == 3
    assert ((rows == 4).sum(1) == 1).all()
    assert rows[np.arange(3), places].tolist() == [4, 4, 4]
    assert places.min() > 0
    assert places.max() < 19
    assert taught("run") == 0
    given = (folder / "corpus", "--num-texts", 5, "--models")
    assert run_script("masked_tokens", *given, tmp_path / "run") == 0
    assert "| run | " in capsys.readouterr().out
    assert run_script("masked_tokens", *given, tiny_model) == 1
    assert "name a pre-trained MODEL" in capsys.readouterr().err


def test_masks_that_are_not_kept_are_the_tokens_before_masking() -> None:
    # Masked are the second and the third token of the first sequence, and the last of the second.
    rows = Rows.from_lists([[2, 4, 4, 3], [2, 9, 4]])
    batch = MaskedRows(rows, torch.tensor([1, 2, 6]), torch.tensor([7, 8, 5]), torch.tensor([0, 1]))
    found = with_masks(batch, torch.tensor([True, False, False]))
    assert found.rows.input_ids.tolist() == [2, 4, 8, 3, 2, 9, 5]
    assert found.masked_lm_positions.tolist() == [1]
    assert found.masked_lm_labels.tolist() == [7]
    assert rows.input_ids.tolist() == [2, 4, 4, 3, 2, 9, 4]


def test_some_sequences_keep_some_of_their_masks() -> None:
    count, length = 600, 10
    rows = Rows.from_lists([[4] * length] * count)
    every = torch.arange(count * length)
    batch = MaskedRows(rows, every, torch.full_like(every, 7), torch.zeros(count))
    numbers = np.random.default_rng(0)
    assert len(fewer_masks(batch, 0, numbers).masked_lm_labels) == count * length
    found = fewer_masks(batch, 0.5, numbers)
    kept = np.bincount(found.masked_lm_positions // length, minlength=count)
    # Half are left as they were; of the others a sixth has none, and the rest 0 to 10 alike.
    assert 0.45 < np.mean(kept == length) < 0.65
    assert 0.5 / 6 < np.mean(kept == 0) < 0.2
    assert 0.25 < np.mean((kept > 0) & (kept < length)) < 0.45
    assert (found.rows.input_ids == 4).sum() == kept.sum()


def test_texts_have_a_few_masks_and_no_pair() -> None:
    rows = Rows.from_lists([[2, 9, 3], [2, *range(10, 50), 3], [2, 8, 7, 3]])
    found = masked_texts(rows, 4, np.random.default_rng(0))
    ids, positions = found.rows.input_ids, found.masked_lm_positions
    counts = [(part == 4).sum().item() for part in ids.split(list(rows.lengths))]
    assert counts[0] == counts[2] == 1
    assert 1 <= counts[1] <= 12
    assert torch.equal(ids.index_copy(0, positions, found.masked_lm_labels.to(ids)), rows.input_ids)
    assert len(positions) == sum(counts)
    assert ids[[0, 2, 3, 44, 45, 48]].tolist() == [2, 3, 2, 3, 2, 3]
    assert found.next_sentence_label is not None
    assert found.next_sentence_label.tolist() == [-100] * 3


def test_the_teacher_pulls_the_cosines_up(taught: Callable[..., int], folder: Path) -> None:
    given = ("--max-steps", 20, "--learning-rate", 0.02, "--eval-steps", 20)
    found = {}
    for weight in (0, 20):
        assert taught(f"w{weight}", *given, "--teacher-weight", weight) == 0
        *_, last = (folder.parent / f"w{weight}/metrics.jsonl").read_text().splitlines()
        found[weight] = json.loads(last)
    assert found[20]["eval_cls_cosine"] > found[0]["eval_cls_cosine"] + 0.2


def test_a_teacher_may_weigh_more_at_the_end(taught: Callable[..., int], folder: Path) -> None:
    # More steps than the loss may stay high before a run ends.
    given = ("--max-steps", 60, "--eval-steps", 60, "--learning-rate", 1e-5)
    assert taught("run", *given, "--last-teacher-weight", 200) == 0
    lines = [json.loads(line) for line in (folder.parent / "run/metrics.jsonl").open()]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert losses[40] < 20 < 100 < losses[60]


def test_processes_draw_what_a_step_would(folder: Path, tiny_model: Path) -> None:
    given = (folder / "corpus", str(tiny_model), 16, 3)
    sentences = Sentences(TokenCorpus(given[0]), *given[1:])
    with closing(DrawnAhead(given, 4, 3)) as ahead:
        for step in range(1, 3):
            found, expected = ahead.take(step), drawn(sentences, step, 4)
            for one, other in zip(ids_of(found), ids_of(expected), strict=True):
                assert torch.equal(one, other)


def ids_of(texts: Drawn) -> list[torch.Tensor]:
    """All token ids of a step's texts."""
    return [each.input_ids for each in (texts.masked.rows, texts.student_rows, texts.teacher_rows)]
