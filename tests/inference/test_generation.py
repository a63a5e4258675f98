"""Generation: greedy, drawn, cached or not, and where it ends."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import CausalConfig
from tidybert.errors import DataError, UsageError, VocabularyError
from tidybert.inference.language_model import Sampling, TextGenerator, TextScorer, softmax
from tidybert.modeling.heads import CausalLM
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import TEXT_TOKENS

LONGEST = 12


def save_model(directory: Path, tokenizer: BertTokenizer) -> None:
    torch.manual_seed(0)
    config = CausalConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=LONGEST, initializer_range=0.3,
    )  # fmt: skip
    model = CausalLM(config)
    save_model_directory(
        directory, model_state=model.state_dict(), config=config, tokenizer=tokenizer,
        metadata=ModelMetadata("train-lm"), architecture="CausalLM",
    )  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A language model with random weights and the toy problem's words."""
    found = tmp_path_factory.mktemp("lm") / "run"
    save_model(found, BertTokenizer.from_pretrained(tiny_model).with_tokens(TEXT_TOKENS))
    return found


@pytest.fixture(scope="module")
def generator(directory: Path) -> TextGenerator:
    return TextGenerator(directory)


def test_each_step_is_its_prompt_and_the_next_token(generator: TextGenerator) -> None:
    steps = list(generator.steps("The red", num_likeliest=3))

    assert steps[0].prompt == "the red"
    for step, following in pairwise(steps):
        assert step.likeliest[0] == (step.token, step.probability)
        assert len(step.likeliest) == 3
        assert following.prompt == step.text
        assert step.text.endswith(step.token)
    # [SOS], two words of the prompt, and a last token that is never read.
    assert steps[-1].is_end or len(steps) == LONGEST - 2


@pytest.mark.parametrize("prompt", ["", "the red cat"])
def test_a_cache_changes_no_token(prompt: str, generator: TextGenerator) -> None:
    sampling = Sampling(temperature=1.5, seed=3)

    cached, plain = (
        list(generator.steps(prompt, sampling=sampling, use_cache=use)) for use in (True, False)
    )

    assert [one.token for one in cached] == [one.token for one in plain]
    for one, other in zip(cached, plain, strict=True):
        assert one.probability == pytest.approx(other.probability, abs=1e-5)


def test_why_it_stops(generator: TextGenerator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert generator.generate("the", max_tokens=2)["stopped"] == "max_tokens"
    monkeypatch.setattr(generator, "end_id", -1)
    full = generator.generate("the")
    assert (full["stopped"], len(full["tokens"])) == ("max_seq_length", LONGEST - 1)
    first = next(generator.steps("the"))
    monkeypatch.setattr(generator, "end_id", first.token_id)
    assert [one.text for one in generator.steps("the")] == ["the"]


def test_draws_follow_the_probabilities() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05])

    def shares(**given: float) -> list[float]:
        sampling, draws = Sampling(**given), np.random.default_rng(0)  # type: ignore[arg-type]
        found = [sampling.choose(logits, draws) for _ in range(4000)]
        return [found.count(index) / 4000 for index in range(4)]

    assert shares() == shares(temperature=0) == [1, 0, 0, 0]
    assert shares(temperature=1) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)
    cold = softmax(logits / 0.5)
    assert shares(temperature=0.5) == pytest.approx(cold.tolist(), abs=0.03)
    assert shares(top_k=2) == pytest.approx([5 / 8, 3 / 8, 0, 0], abs=0.03)
    # 0.5 and 0.3 are less than 0.81, so the third is needed.
    assert shares(top_p=0.81) == pytest.approx([50 / 95, 30 / 95, 15 / 95, 0], abs=0.03)
    assert shares(top_p=0.1) == [1, 0, 0, 0]


def test_a_seed_repeats_a_text(generator: TextGenerator) -> None:
    texts = [generator.generate(top_k=20, seed=seed)["text"] for seed in (1, 1, 2)]

    assert texts[0] == texts[1] != texts[2]


def test_what_cannot_be_used_is_refused(generator: TextGenerator) -> None:
    for match, given in (
        ("temperature", {"temperature": -1.0}),
        ("top_k", {"top_k": 0}),
        ("top_p", {"top_p": 1.5}),
        ("max_tokens", {"max_tokens": 0}),
    ):
        with pytest.raises(UsageError, match=match):
            generator.generate("the", **given)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="has 13 tokens with"):
        generator.generate("the " * LONGEST)


def test_a_vocabulary_without_the_bounds_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    save_model(tmp_path, BertTokenizer.from_pretrained(tiny_model))

    with pytest.raises(VocabularyError, match=r"has no \[SOS\] and no \[EOS\]"):
        TextGenerator(tmp_path)


def test_a_score_is_the_product_of_the_steps(
    directory: Path, generator: TextGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = TextScorer(directory)

    short, long = scorer.score(["the red cat", "the red cat " * 8])

    assert [each["token"] for each in short["tokens"]] == ["the", "red", "cat", "[EOS]"]
    logs = []
    for prompt, each in zip(["", "the", "the red", "the red cat"], short["tokens"], strict=True):
        step = next(generator.steps(prompt, num_likeliest=generator.tokenizer.vocab_size))
        assert dict(step.likeliest)[each["token"]] == pytest.approx(each["probability"], rel=1e-5)
        logs.append(np.log(each["probability"]))
    assert short["perplexity"] == pytest.approx(np.exp(-np.mean(logs)), rel=1e-5)
    # 24 words in pieces of 11, each of which begins the context again.
    assert long["num_tokens"] == len(long["tokens"]) == 25
    parts = ["the red cat " * 3 + "the red", "cat the red " * 3 + "cat the", "red cat"]
    apart = [each["probability"] for one in scorer.score(parts) for each in one["tokens"]]
    del apart[11], apart[22]
    assert [each["probability"] for each in long["tokens"]] == pytest.approx(apart, rel=1e-4)
    assert scorer.score([""])[0]["num_tokens"] == 1
