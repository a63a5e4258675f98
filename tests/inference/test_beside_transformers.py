"""Answers of random models beside transformers' own recipes, on raw text in many scripts.

For each kind of tokenizer and each task: every answer, its place in the text, and its score.
make test-relatives CASES=2000 asks 2,000 texts of each, from 20 models.
"""

import os
import random
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.foreign_models import CLASSES, KINDS, LENGTH, NAMES, save_model, text_of

import tidybert
from tidybert.tasks.tags.tag_files import as_iob2, split_text

pytest.importorskip("sentencepiece")
sentence_transformers = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")

NUM_CASES: Final = int(os.environ.get("TIDYBERT_RELATIVE_CASES", "8"))
NUM_MODELS: Final = min(20, max(1, NUM_CASES // 8))
TOLERANCE: Final = 1e-4
Logits = npt.NDArray[np.float32]
Span = tuple[int, int]


class Both:
    """A random model with a head, here and there."""

    def __init__(self, folder: Path, name: str, head: str, seed: int, **more: Any) -> None:
        self.kind, self.name = KINDS[name], name
        self.model = save_model(folder, name, head, seed, **more)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.ours = tidybert.Predictor(folder, device="cpu", max_seq_length=LENGTH)

    def logits(self, encoding: Any, keys: Sequence[str] = ("logits",)) -> list[Any]:
        """What the model outputs for each sequence of ids alone, by padding to the longest."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        given = {name: encoding[name] for name in names if name in encoding}
        padded = self.tokenizer.pad(given, return_tensors="pt")
        with torch.no_grad():
            found = self.model(**padded)
        return [found[key].numpy() for key in keys]


def softmax(logits: Any) -> npt.NDArray[np.float64]:
    shifted = np.exp(np.asarray(logits, np.float64) - np.max(logits, -1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def close(found: Any, expected: Any, *told: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE, err_msg=repr(told))


# Tasks on whole texts


def classify(folder: Path, name: str, seed: int, rng: random.Random, count: int) -> None:
    names = dict(enumerate(CLASSES))
    more: dict[str, Any] = {"id2label": names, "label2id": {v: k for k, v in names.items()}}
    is_multi = seed % 2 == 1
    if is_multi:
        more["problem_type"] = "multi_label_classification"
    both = Both(folder, name, "ForSequenceClassification", seed, **more)
    texts = [text_of(rng, rng.choice((1, 3, 8, 40))) for _ in range(count)]

    answers = both.ours.predict(texts)

    pipeline = transformers.pipeline(
        "text-classification", model=both.model, tokenizer=both.tokenizer, top_k=None, device="cpu"
    )
    expected = pipeline(texts, truncation=True, max_length=LENGTH, batch_size=32)
    for text, answer, scores in zip(texts, answers, expected, strict=True):
        theirs = {each["label"]: each["score"] for each in scores}
        assert answer["scores"].keys() == theirs.keys()
        close([answer["scores"][each] for each in theirs], [*theirs.values()], text)
        if not is_multi and abs(np.diff(sorted(theirs.values()))[-1]) > TOLERANCE:
            assert answer["label"] == max(theirs, key=lambda each: theirs[each])


def score(folder: Path, name: str, seed: int, rng: random.Random, count: int) -> None:
    save_model(folder / "head", name, "ForSequenceClassification", seed, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(
        str(folder / "head"), device="cpu", max_length=LENGTH
    )
    theirs.save_pretrained(str(folder / "saved"))
    lengths = (1, 2, 4) if name == "vocab.txt" else (2, 6, 12, 50)
    pairs = [(text_of(rng, rng.choice(lengths)), text_of(rng, rng.choice(lengths)))
             for _ in range(count)]  # fmt: skip

    answers = tidybert.Predictor(folder / "saved", device="cpu").predict(pairs)

    expected = theirs.predict(pairs, batch_size=32, show_progress_bar=False)
    close([each["value"] for each in answers], expected)


def choose(folder: Path, name: str, seed: int, rng: random.Random, count: int) -> None:
    both = Both(folder, name, "ForMultipleChoice", seed)
    contexts = [text_of(rng, rng.choice((2, 8, 40))) for _ in range(count)]
    choices = [[text_of(rng, rng.choice((1, 5, 20))) for _ in range(3)] for _ in contexts]

    answers = both.ours.predict(contexts, choices)

    for context, three, answer in zip(contexts, choices, answers, strict=True):
        encoding = both.tokenizer(
            [context] * 3, three, truncation=True, max_length=LENGTH, padding=True,
            return_tensors="pt",
        )  # fmt: skip
        with torch.no_grad():
            logits = both.model(**{key: value[None] for key, value in encoding.items()}).logits[0]
        close(answer["scores"], softmax(logits.numpy()), context, three)


# Tasks that go from characters to tokens, and back


def windows(both: Both, text: Sequence[Any], question: str | None, **more: Any) -> Any:
    """transformers' windows over a text, as its examples cut them; ours are half a room apart."""
    own = both.tokenizer
    count = own.num_special_tokens_to_add(pair=question is not None)
    if question is not None:
        count += len(own(question, add_special_tokens=False)["input_ids"])
    room = LENGTH - count
    given = (text,) if question is None else (question, text)
    return own(
        *given,
        truncation=True if question is None else "only_second",
        max_length=LENGTH,
        stride=room - (room + 1) // 2,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        **more,
    )


def joined(encoding: Any, side: int) -> list[list[tuple[int, int]]]:
    """For each window the rows of the text, and which token of the whole text each is."""
    found, step = [], None
    for number in range(len(encoding["input_ids"])):
        rows = [row for row, each in enumerate(encoding.sequence_ids(number)) if each == side]
        step = (len(rows) + 1) // 2 if step is None else step
        found.append([(row, number * step + at) for at, row in enumerate(rows)])
    return found


def owners(places: list[list[tuple[int, int]]]) -> dict[int, int]:
    """The window that shows most around each token (run_squad.py, _check_is_max_context)."""
    best: dict[int, tuple[float, int]] = {}
    for number, window in enumerate(places):
        for at, (_, token) in enumerate(window):
            context = min(at, len(window) - 1 - at) + 0.01 * len(window)
            if token not in best or context > best[token][0]:
                best[token] = context, number
    return {token: number for token, (_, number) in best.items()}


def tokens_of(spans: Sequence[Span], offsets: dict[int, Span]) -> list[int]:
    """For each word the first token that covers it, or else the one before it."""
    found = []
    for begin, end in spans:
        covering = [at for at, (x, y) in offsets.items() if x < end and y > begin and x < y]
        before = [at for at, (x, y) in offsets.items() if y <= begin]
        found.append(min(covering) if covering else max(before, default=0))
    return found


def check_tags(
    answer: Any, tokens: Sequence[int], logits: dict[int, Logits], named: bool, told: Any
) -> None:
    """The tags and scores of words that are read at these tokens."""
    scores = {at: softmax(each) for at, each in logits.items()}
    firsts = [at for place, at in enumerate(tokens) if not place or at != tokens[place - 1]]
    if not scores:  # the tokenizer drops the whole text
        return
    if min((np.diff(np.sort(scores[at]))[-1] for at in firsts), default=1) < TOLERANCE:
        return  # two tags are equal to rounding
    if not named:
        assert answer["tags"] == [f"T{scores[at].argmax()}" for at in tokens]
        close(answer["scores"], [scores[at].max() for at in tokens], told)
        return
    whole = iter(as_iob2([NAMES[scores[at].argmax()] for at in firsts]))
    tags: list[str] = []
    for place, at in enumerate(tokens):
        same = place > 0 and at == tokens[place - 1]
        tags.append(tags[-1].replace("B-", "I-") if same else next(whole))
    assert answer["tags"] == tags, told
    begins = [place for place, tag in enumerate(tags) if tag[0] == "B"]
    assert len(answer["entities"]) == len(begins)
    for one, begin in zip(answer["entities"], begins, strict=True):
        end = begin + 1
        while end < len(tags) and tags[end][0] == "I":
            end += 1
        assert one["type"] == tags[begin][2:]
        close(one["score"], np.mean([scores[at].max() for at in tokens[begin:end]]), told)


def tagger(folder: Path, name: str, seed: int) -> tuple[Both, bool]:
    named = seed % 2 == 0
    names = dict(enumerate(NAMES if named else (f"T{number}" for number in range(5))))
    labels = {"id2label": names, "label2id": {v: k for k, v in names.items()}}
    return Both(folder, name, "ForTokenClassification", seed, **labels), named


def tag(folder: Path, name: str, seed: int, rng: random.Random, count: int) -> None:
    both, named = tagger(folder, name, seed)
    texts = [text_of(rng, rng.choice((1, 3, 8, 8, 60))) for _ in range(count)]

    answers = both.ours.predict(texts)

    pipeline = transformers.pipeline(
        "token-classification", model=both.model, tokenizer=both.tokenizer, ignore_labels=[],
        aggregation_strategy="none", device="cpu",
    )  # fmt: skip
    for at, (text, answer) in enumerate(zip(texts, answers, strict=True)):
        encoding = windows(both, text, None)
        (rows,) = both.logits(encoding)
        places = joined(encoding, 0)
        owner = owners(places)
        logits, offsets = {}, {}
        for number, window in enumerate(places):
            for row, token in window:
                offsets[token] = encoding["offset_mapping"][number][row]
                if owner[token] == number:
                    logits[token] = rows[number, row]
        words, spans = split_text(text)
        assert answer["words"] == [*words]
        check_tags(answer, tokens_of(spans, offsets), logits, named, text)
        for one in answer.get("entities", ()):
            assert (one["start"], one["end"]) in {(x, y) for x, _ in spans for _, y in spans}
            assert one["text"] == text[one["start"] : one["end"]]
        if len(places) == 1 and at < 4 and text.strip():
            theirs = {each["index"] - 1: each["score"] for each in pipeline(text)}
            close([softmax(logits[token]).max() for token in theirs], [*theirs.values()], text)


def words(folder: Path, name: str, seed: int, rng: random.Random, count: int) -> None:
    """Lists of words, as run_ner.py reads them."""
    both, named = tagger(folder, name, seed)
    sentences = [text_of(rng, rng.choice((1, 4, 8))).split() for _ in range(count)]
    sentences = [each or ["cat"] for each in sentences]

    answers = both.ours.predict(sentences)

    special = both.tokenizer.num_special_tokens_to_add()
    for sentence, answer in zip(sentences, answers, strict=True):
        if both.kind.spaced:
            # add_prefix_space=True, as run_ner.py opens these tokenizers
            spaced = [f" {word}" for word in sentence]
            pieces = both.tokenizer(spaced, add_special_tokens=False)["input_ids"]
            ids = [both.tokenizer.cls_token_id, *chain(*pieces), both.tokenizer.sep_token_id]
            numbers = [None, *(at for at, each in enumerate(pieces) for _ in each), None]
        else:
            encoding = both.tokenizer(sentence, is_split_into_words=True)
            ids, numbers = encoding["input_ids"], encoding.word_ids()
        if len(ids) > LENGTH or len(ids) <= special:
            continue
        (rows,) = both.logits({"input_ids": [ids], "attention_mask": [[1] * len(ids)]})
        logits = {row: rows[0, row] for row in range(len(ids))}
        tokens = []
        for number in range(len(sentence)):
            # A word without a piece is read at the piece before it.
            found = [row for row, each in enumerate(numbers) if each == number]
            before = [row for row, each in enumerate(numbers) if each is not None and each < number]
            tokens.append(found[0] if found else max(before, default=1))
        check_tags(answer, tokens, logits, named, sentence)


def trimmed(text: str, start: int, end: int) -> Span:
    """Without white space around it, which some byte-level tokenizers count to a token."""
    piece = text[start:end]
    if piece.strip():
        return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
    return start, end


def answer(folder: Path, name: str, seed: int, rng: random.Random, count: int) -> None:
    """Questions, as run_qa.py and postprocess_qa_predictions answer them."""
    both = Both(folder, name, "ForQuestionAnswering", seed)
    # tidybert counts a decomposed accent to its letter, the tokenizers library to nothing.
    marks = name not in ("wordpiece", "vocab.txt")
    contexts = [text_of(rng, rng.choice((1, 4, 8, 60)), marks=marks) for _ in range(count)]
    questions = [text_of(rng, rng.choice((1, 3)))[:16] for _ in contexts]

    answers = both.ours.predict(questions, contexts)

    for question, context, found in zip(questions, contexts, answers, strict=True):
        encoding = windows(both, context, question)
        starts, ends = both.logits(encoding, ("start_logits", "end_logits"))
        places = joined(encoding, 1)
        owner = owners(places)
        best: dict[Span, float] = {}
        for number, window in enumerate(places):
            offsets = encoding["offset_mapping"][number]
            for at, (first, token) in enumerate(window):
                if owner[token] != number:
                    continue
                for last, _ in window[at : at + 30]:
                    begin, _ = trimmed(context, *offsets[first])
                    _, end = trimmed(context, *offsets[last])
                    value = float(starts[number, first]) + float(ends[number, last])
                    best[begin, end] = max(value, best.get((begin, end), -np.inf))
        if not best:
            assert (found["answer"], found["n_best"]) == ("", [])
            continue
        values = np.array([*best.values()])
        total = values.max() + np.log(np.exp(values - values.max()).sum())
        ranked = sorted(best, key=lambda span: -best[span])
        assert len(found["n_best"]) == min(20, len(ranked))
        told = question, context
        for one, span in zip(found["n_best"], ranked, strict=False):
            # The order of equals is free; each has its score all the same.
            close(one["score"], np.exp(best[span] - total), told)
            close(one["score"], np.exp(best[one["start"], one["end"]] - total), told)
            assert one["answer"] == context[one["start"] : one["end"]]
        assert (found["start"], found["end"]) == (
            found["n_best"][0]["start"], found["n_best"][0]["end"],
        )  # fmt: skip


TASKS: Final[tuple[Callable[..., None], ...]] = (classify, score, choose, tag, words, answer)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_answers_places_and_scores_are_those_of_transformers(
    name: str, task: Callable[..., None], tmp_path: Path
) -> None:
    for seed in range(NUM_MODELS):
        count = NUM_CASES // NUM_MODELS + (seed < NUM_CASES % NUM_MODELS)
        rng = random.Random(f"{name} {task.__name__} {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        # So the short form, of one model, has entities and plain tags too.
        task(folder, name, seed + len(name) % 2, rng, count)
