"""The hundred sentences, and how a model's answers to them are counted."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scores import words
from tidybert import BertTokenizer

ROME = "Rome is the [MASK] of Italy, which is why it hosts many government buildings."


class Filler:
    """Stands for MaskFiller: the whole vocabulary, from its end."""

    def __init__(self, tokenizer: BertTokenizer) -> None:
        self.tokenizer = tokenizer

    def fill(self, texts: list[str], top_k: int) -> list[dict[str, Any]]:
        assert top_k == self.tokenizer.vocab_size
        words = [{"word": word} for word in reversed(self.tokenizer.vocabulary.tokens)]
        return [{"masks": [{"words": words}]} for _ in texts]


def test_a_hundred_sentences_of_five_kinds() -> None:
    sentences = words.read_sentences()
    assert len({one.text for one in sentences}) == 100
    assert set(Counter(one.kind for one in sentences).values()) == {20}
    assert ROME in {one.text for one in sentences}
    for one in sentences:
        assert one.text.count("[MASK]") == 1, one
        assert one.text[0].isupper() or one.text.startswith("[MASK]"), one
        assert one.text.endswith("."), one
        assert one.answers, one
        assert len(set(one.answers)) == len(one.answers), one
        assert all(word.isalnum() for word in one.answers), one


@pytest.mark.real_data
def test_every_accepted_word_is_one_piece_of_the_published_vocabularies(real_data: Path) -> None:
    for path in ("bert-base-uncased", "bert-base-cased"):
        vocabulary = set((real_data / "vocab" / path / "vocab.txt").read_text("utf-8").split("\n"))
        for one in words.read_sentences():
            for answer in one.answers:
                assert {answer, answer.lower()} & vocabulary, (path, answer)


def test_the_rank_is_that_of_the_best_accepted_piece(tiny_model: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    order = tokenizer.vocabulary.tokens[::-1]
    given = [
        words.Sentence("a [MASK]", ("red", "Green"), "colour"),
        words.Sentence("a [MASK]", ("giraffe", order[9]), "animal"),
        words.Sentence("the [MASK]", ("giraffe", "zebra"), "animal"),
        words.Sentence("the [MASK]", (order[0],), "none"),
    ]
    green = order.index("green") + 1
    found = words.answered(Filler(tokenizer), given)
    assert [one.rank for one in found] == [green, 10, None, 1]
    assert [one.not_one_piece for one in found] == [[], ["giraffe"], ["giraffe", "zebra"], []]
    assert list(found[0].guesses) == list(order[:5])

    rows = words.cloze_table(found)[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| colour", "| animal", "| none", "| all"]
    assert rows[1] == "| animal | 2 | 0 | 0 | 1 | 0.050 |"
    assert rows[-1] == f"| all | 4 | 1 | 1 | 2 | {(1 / green + 1 / 10 + 1) / 4:.3f} |"
    said = "\n".join(words.listed(found))
    assert "3 accepted words (giraffe, giraffe, zebra); 1 sentences have no other" in said
    assert f"  the [MASK] {', '.join(order[:5])} (giraffe/zebra: None)" in said


def test_a_model_is_asked_and_its_table_written(
    run_script: Callable[..., int],
    page: Callable[[str], Path],
    pretrained_run: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentences = [words.Sentence("the [MASK] cat", ("red", "pink"), "colour")] * 3
    monkeypatch.setattr(words, "read_sentences", lambda: sentences)
    written = page("cloze")

    assert run_script("cloze", pretrained_run, "--write", written) == 0

    out = capsys.readouterr().out
    assert "not a single piece of the vocabulary: 3 accepted words" in out
    assert "| all | 3 |" in out
    assert "| all | 3 |" in written.read_text()
    assert run_script("cloze", tiny_model) == 1
    assert "has no masked-LM head" in capsys.readouterr().err
