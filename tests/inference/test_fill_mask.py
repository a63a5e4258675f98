"""Fill-mask: transformers' probabilities and words, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import DataError, TextError, UsageError, WeightsError
from tidybert.inference.pretraining_heads import MaskFiller, _with
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS

Pretrained = Callable[[str], tuple[Path, Any]]
TEXTS = ["we saw a [MASK] hen", "[MASK] dog [MASK] the old [MASK]", "[MASK]", "a red[MASK]"]


@pytest.fixture(scope="module", params=["BertForMaskedLM", "BertForPreTraining"])
def directory(request: pytest.FixtureRequest, pretrained: Pretrained) -> Path:
    return pretrained(request.param)[0]


@pytest.fixture(scope="module")
def filler(pretrained: Pretrained) -> MaskFiller:
    return MaskFiller(pretrained("BertForMaskedLM")[0])


def their_masks(directory: Path, text: str, **options: Any) -> list[list[dict[str, Any]]]:
    """What transformers' pipeline says of each [MASK] of a text."""
    import transformers

    pipeline = transformers.pipeline(
        "fill-mask",
        model=transformers.BertForMaskedLM.from_pretrained(directory),
        tokenizer=transformers.AutoTokenizer.from_pretrained(directory),
    )
    found = pipeline(text, **options)
    return found if isinstance(found[0], list) else [found]


def test_words_and_probabilities_are_those_of_transformers(directory: Path) -> None:
    answers = MaskFiller(directory).fill(TEXTS, top_k=24)

    for answer, text in zip(answers, TEXTS, strict=True):
        theirs = their_masks(directory, text, top_k=24)
        assert len(answer["masks"]) == len(theirs) == text.count("[MASK]")
        for mask, expected in zip(answer["masks"], theirs, strict=True):
            assert text[mask["start"] : mask["end"]] == "[MASK]"
            words = {each["word"]: each["probability"] for each in mask["words"]}
            assert words == pytest.approx(
                {each["token_str"]: each["score"] for each in expected}, abs=1e-5
            )
            assert sum(words.values()) == pytest.approx(1, abs=1e-5)
            assert list(words.values()) == sorted(words.values(), reverse=True)


def test_among_gives_the_probabilities_of_these_words_alone(directory: Path) -> None:
    words = ["red", "BLUE", "dog"]

    (answer,) = MaskFiller(directory).fill(TEXTS[:1], among=words)
    (best,) = MaskFiller(directory).fill(TEXTS[:1], among=words, top_k=1)

    (expected,) = their_masks(directory, TEXTS[0], targets=["red", "blue", "dog"])
    (mask,) = answer["masks"]
    assert [each["word"] for each in mask["words"]] == [each["token_str"] for each in expected]
    assert [each["probability"] for each in mask["words"]] == pytest.approx(
        [each["score"] for each in expected], abs=1e-5
    )
    assert best["masks"][0]["words"] == mask["words"][:1]


def test_an_answer_in_full(filler: MaskFiller) -> None:
    (answer,) = filler.fill(["The [MASK] and a [MASK]!"], among=["red", "hen"])

    assert answer.keys() == {"text", "filled", "masks"}
    first, second = answer["masks"]
    best = [mask["words"][0]["word"] for mask in (first, second)]
    assert answer["filled"] == f"The {best[0]} and a {best[1]}!"
    assert (second["start"], second["end"]) == (17, 23)
    texts = {each["word"]: each["text"] for each in second["words"]}
    assert texts == {"red": "The [MASK] and a red!", "hen": "The [MASK] and a hen!"}
    assert [len(mask["words"]) for mask in filler.fill(["[MASK]"])[0]["masks"]] == [5]


def test_a_continuation_joins_what_stands_before() -> None:
    tokenizer = BertTokenizer([*SPECIAL_TOKENS, "##ing", "##b", "##"])
    assert _with(tokenizer, "play [MASK] now", (5, 11), "##ing") == "playing now"
    assert _with(tokenizer, "[MASK] [MASK] c", (7, 13), "##b") == "[MASK]b c"
    assert _with(tokenizer, "a [MASK].", (2, 8), "##") == "a ##."


@given(order=st.permutations(range(len(TEXTS))))
def test_the_company_of_texts_changes_nothing(filler: MaskFiller, order: list[int]) -> None:
    alone = [filler.fill([text])[0] for text in TEXTS]

    for at, answer in zip(order, filler.fill([TEXTS[at] for at in order]), strict=True):
        assert answer["text"] == TEXTS[at]
        for mask, same in zip(answer["masks"], alone[at]["masks"], strict=True):
            assert [each["probability"] for each in mask["words"]] == pytest.approx(
                [each["probability"] for each in same["words"]], abs=1e-5
            )


def test_more_texts_than_are_held_at_once(filler: MaskFiller) -> None:
    texts = [TEXTS[number % 4] for number in range(150)]

    answers = filler.fill(texts)

    assert [answer["text"] for answer in answers] == texts
    assert [len(answer["masks"]) for answer in answers[-2:]] == [1, 3]
    assert filler.fill([]) == []


def test_the_head_sees_masked_rows_alone(filler: MaskFiller) -> None:
    seen: list[int] = []
    hook = filler.model.mlm.register_forward_hook(
        lambda _module, given, _output: seen.append(len(given[0]))
    )

    filler.fill(TEXTS)
    hook.remove()

    assert seen == [6]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a [MASK]", "we saw a hen"], r"text 2, 'we saw a hen', has no \[MASK\]: write it"),
        (["a [mask]"], r"has no \[MASK\]: write it, spelled so"),
        ([""], r"has no \[MASK\]"),
        (["the old [MASK] " * 12], r"text 1, .*, has 38 tokens, .* positions for 32: shorten it"),
        ("a [MASK]", "one string was given"),
    ],
)
def test_texts_that_cannot_be_filled_are_refused(
    filler: MaskFiller, texts: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        filler.fill(texts)


def test_a_text_as_long_as_the_model_is_filled(filler: MaskFiller) -> None:
    (answer,) = filler.fill(["the old [MASK] " * 10])

    assert len(answer["masks"]) == 10
    with pytest.raises(TextError, match="lone surrogate"):
        filler.fill(["[MASK] \ud800"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k is 0: expected 1 to 24"),
        ({"top_k": 25}, "top_k is 25: expected 1 to 24"),
        ({"top_k": 3, "among": ["red", "a"]}, "top_k is 3: expected 1 to 2"),
        ({"among": ["red hen"]}, "among: 'red hen' is 2 tokens of the vocabulary: red hen"),
        ({"among": [""]}, "among: '' is 0 tokens of the vocabulary; "),
        ({"among": ["zebra"]}, "among: the vocabulary has no word 'zebra'"),
        ({"among": ["red", "Red"]}, "among: 'red' and 'Red' are one word"),
    ],
)
def test_words_that_cannot_be_chosen_from_are_refused(
    filler: MaskFiller, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        filler.fill(TEXTS[:1], **options)


@pytest.mark.parametrize("among", ["red", []])
def test_among_is_a_list(filler: MaskFiller, among: Any) -> None:
    with pytest.raises(DataError, match=r"among is .*: expected a list of words"):
        filler.fill(TEXTS, among=among)


@pytest.mark.parametrize("name", ["BertModel", "BertForNextSentencePrediction"])
def test_a_model_without_the_head_says_what_it_lacks(name: str, pretrained: Pretrained) -> None:
    message = (
        r"has no masked-LM head: its weights lack .*cls\.predictions\.bias.* Name a model "
        r"that has its pre-training heads"
    )
    with pytest.raises(WeightsError, match=message):
        MaskFiller(pretrained(name)[0])
