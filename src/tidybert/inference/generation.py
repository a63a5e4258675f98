"""Generation: a language model says the next token, takes it into the prompt, and goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from tidybert.errors import DataError, UsageError, WeightsError, param
from tidybert.inference.answer_precision import AnswerPrecision, answering_in, prepare_precision
from tidybert.inference.loading import fitting_length, load_with_head, to_device
from tidybert.inference.notebooks import ShowsPretraining
from tidybert.modeling.causal_model import CausalModel, KeyValueCache
from tidybert.modeling.heads import CausalLM
from tidybert.tokenization.vocabulary import EOS_TOKEN
from tidybert.tokenization.wordpiece import join_pieces

NUM_LIKELIEST: Final = 10
Probabilities = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NextToken:
    """One step of generation.

    prompt: the text before it.  token: the token that was chosen, [EOS] at the end.  probability:
    its share of the model's answer, before temperature, top-k and top-p.  likeliest: the likeliest
    tokens with their probabilities, the best first.  text: the prompt with the token.
    """

    prompt: str
    token: str
    token_id: int
    probability: float
    likeliest: tuple[tuple[str, float], ...]
    text: str

    @property
    def is_end(self) -> bool:
        """Whether the model ended the text."""
        return self.token == EOS_TOKEN


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen: greedily, the likeliest one, or drawn where any of these is given.

    temperature: divides the logits; 0 is greedy, and 1, the default where a draw is asked for,
    leaves the model's probabilities as they are.  top_k: draw from the k likeliest alone.  top_p:
    draw from the likeliest that together have this probability.  seed: of the draws.

    Raises UsageError for a value that cannot be used.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0 <= self.temperature < float("inf"):
            raise UsageError(
                f"{param('temperature')} is {self.temperature}: expected 0, for the likeliest "
                "token, or more"
            )
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"{param('top_k')} is {self.top_k}: expected 1 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"{param('top_p')} is {self.top_p}: expected above 0, up to 1")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        if self.temperature is None:
            return self.top_k is None and self.top_p is None
        return self.temperature == 0

    def choose(self, logits: Probabilities, draws: np.random.Generator) -> int:
        """The id that is chosen by logits (V,)."""
        if self.is_greedy:
            return int(logits.argmax())
        probabilities = softmax(logits / (1.0 if self.temperature is None else self.temperature))
        order = np.argsort(-probabilities, kind="stable")[: self.top_k]
        kept = probabilities[order]
        if self.top_p is not None:
            # The token that reaches the share is the last one.
            kept = kept[: int(np.searchsorted(kept.cumsum(), self.top_p)) + 1]
        ends = kept.cumsum()
        place = np.searchsorted(ends, draws.random() * ends[-1], "right")
        return int(order[min(int(place), len(kept) - 1)])


class TextGenerator(ShowsPretraining):
    """A language model of ``tidybert train-lm`` that goes on with a text.

    Args:
        model: a RUN of train-lm.
        device: auto, cpu, cuda or cuda:N.
        precision: as for MaskFiller.

    Raises what ``load`` raises, and ConfigError for a BERT.
    """

    def __init__(
        self, model: str | Path, *, device: str = "auto", precision: AnswerPrecision = "auto"
    ) -> None:
        self.model, self.tokenizer = load_with_head(CausalLM, model, head="output layer")
        self.start_id, self.end_id = self.tokenizer.vocabulary.text_bounds
        self.device = to_device(self.model, device)
        self.precision = prepare_precision(precision, self.model, model, self.device)
        self.max_seq_length = fitting_length(self.model.config, None)
        self._note(model, self.model.config)

    def generate(
        self,
        prompt: str = "",
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 42,
    ) -> dict[str, Any]:
        """The whole text: {"prompt", "text", "tokens", "stopped"}.

        "tokens" has {"token", "probability"} for each new one.  "stopped" says why: "[EOS]",
        "max_tokens" or "max_seq_length".  Arguments and errors are those of ``steps``.
        """
        sampling = Sampling(temperature, top_k, top_p, seed)
        steps = list(self.steps(prompt, max_tokens=max_tokens, sampling=sampling))
        return self.answer(prompt, steps, max_tokens)

    def answer(self, prompt: str, steps: list[NextToken], max_tokens: int | None) -> dict[str, Any]:
        """What ``generate`` gives for a prompt and its steps."""
        stopped = "max_seq_length"
        if steps and steps[-1].is_end:
            stopped = EOS_TOKEN
        elif len(steps) == max_tokens:
            stopped = "max_tokens"
        return {
            "prompt": prompt,
            "text": steps[-1].text if steps else self.spelled(prompt),
            "tokens": [{"token": one.token, "probability": one.probability} for one in steps],
            "stopped": stopped,
        }

    def steps(
        self,
        prompt: str = "",
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        num_likeliest: int = NUM_LIKELIEST,
        use_cache: bool = True,
    ) -> Iterator[NextToken]:
        """Each next token as it comes, up to [EOS], ``max_tokens`` or the model's longest sequence.

        Args:
            prompt: the beginning; an empty one begins a text.
            sampling: None takes the likeliest token each time.
            num_likeliest: how many of the likeliest tokens each step lists.
            use_cache: keep the keys and values of earlier tokens; without it each step computes
                them again.

        Raises DataError for a prompt that leaves no room for a token, and UsageError.
        """
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"{param('max_tokens')} is {max_tokens}: expected 1 or more")
        sampling = sampling or Sampling()
        ids = [self.start_id, *self.tokenizer.encode(prompt, add_special_tokens=False).input_ids]
        if len(ids) > self.max_seq_length:
            raise DataError(
                f"the prompt has {len(ids)} tokens with [SOS], and the model has positions for "
                f"{self.max_seq_length}: shorten it"
            )
        return self._steps(ids, max_tokens, sampling, num_likeliest, use_cache)

    def _steps(
        self,
        ids: list[int],
        max_tokens: int | None,
        sampling: Sampling,
        num_likeliest: int,
        use_cache: bool,
    ) -> Iterator[NextToken]:
        draws = np.random.default_rng(sampling.seed)
        cache, num_begun = KeyValueCache(), len(ids)
        while len(ids) <= self.max_seq_length and len(ids) - num_begun != max_tokens:
            if not use_cache:
                cache = KeyValueCache()
            logits = self._logits(ids[cache.num_tokens :], cache)
            probabilities = softmax(logits)
            chosen = sampling.choose(logits, draws)
            best = np.argsort(-probabilities, kind="stable")[:num_likeliest].tolist()
            names = self.tokenizer.convert_ids_to_tokens([chosen, *best])
            before = self._text(ids)
            ids = [*ids, chosen]
            yield NextToken(
                before,
                names[0],
                chosen,
                float(probabilities[chosen]),
                tuple(zip(names[1:], probabilities[best].tolist(), strict=True)),
                before if chosen == self.end_id else self._text(ids),
            )
            if chosen == self.end_id:
                return

    def spelled(self, text: str) -> str:
        """A text as the tokenizer spells it."""
        return join_pieces(self.tokenizer.tokenize(text))

    def _text(self, ids: list[int]) -> str:
        """The text of ids that begin with [SOS]."""
        return join_pieces(self.tokenizer.convert_ids_to_tokens(ids[1:]))

    def _logits(self, ids: list[int], cache: KeyValueCache) -> Probabilities:
        """(V,): the logits of the token after the given ones, over the tokenizer's words."""
        encoder = self.model.bert
        assert isinstance(encoder, CausalModel)
        with answering_in(self.precision, self.device):
            hidden = encoder.extend(torch.tensor(ids, device=self.device), cache)
            logits = self.model.logits(hidden[-1:]).float()[0, : self.tokenizer.vocab_size]
        found = logits.cpu().numpy().astype(np.float64)
        if not np.isfinite(found).all():
            raise WeightsError(
                "the model's outputs are not finite: its weights are too large, or not finite "
                f"themselves; try {param('precision', 'float32')}, or train again at a lower "
                "learning rate"
            )
        return found


def softmax(logits: Probabilities) -> Probabilities:
    """(V,) probabilities of logits (V,)."""
    powers = np.exp(logits - logits.max())
    found: Probabilities = powers / powers.sum()
    return found
