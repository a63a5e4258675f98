"""Generation: a language model says the next token, takes it into the prompt, and goes on."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.data.features import Features, sequence
from tidybert.errors import DataError, UsageError, WeightsError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import answering_in, run_batches
from tidybert.inference.loading import OfPretraining, check_texts, single_texts
from tidybert.inference.options import OpeningOptions
from tidybert.modeling.architectures import CausalModel, KeyValueCache
from tidybert.modeling.kernels.transfer import to_device as copied_to
from tidybert.options import documented
from tidybert.tokenization.vocabulary import EOS_TOKEN
from tidybert.tokenization.wordpiece import join_pieces

# How likely a text is: the probability of each of its tokens, and the perplexity.
#
# A language model gives each token a probability from the tokens before it, so their product is the
# probability of the text.  A BERT sees both sides: each token is masked in turn and predicted from
# all others (Salazar et al.  2020, "Masked language model scoring").  That product is not the
# probability of any text, and the perplexity made from it is called pseudo-perplexity.

# Texts in memory at once; a BERT reads each as often as it has tokens.
_CHUNK: Final = 64
# Rows whose logits, V each, exist at once.
_ROWS: Final = 256
Ids = npt.NDArray[np.int32]


@documented(OpeningOptions)
class TextScorer(OfPretraining):
    """A language model, or a BERT with its masked-LM head, that says how likely texts are.

    ``is_causal`` says which of the two it is.  Raises what ``load`` raises, WeightsError for a BERT
    without the head, and UsageError.

    Args:
        model: a RUN of train-lm, or a MODEL with a masked-LM head.
    """

    _heads = ("BertForMaskedLM", "CausalLM")
    _has_graph = False

    @property
    def measure(self) -> str:
        """The key of an answer's figure."""
        return "perplexity" if self.is_causal else "pseudo_perplexity"

    def score(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One answer a text, in order: {"text", "tokens", "perplexity", "num_tokens"}.

        "tokens" has {"token", "probability"} for each; a language model's last one is [EOS].
        "perplexity" is exp of the mean of -ln(probability); a BERT's answer has
        "pseudo_perplexity" in its place.  A text with more tokens than the model
        has positions is predicted in pieces, each without the others.

        Raises DataError where a BERT is given a text without tokens.
        """
        check_texts(texts)
        return self._score(texts, [f"text {number}" for number in range(1, len(texts) + 1)])

    def score_chunks(
        self, examples: Iterable[TextExample], *, first: int = 1
    ) -> Iterator[tuple[list[TextExample], list[dict[str, Any]]]]:
        """The same answers in lists, with their examples: ``first``, twice as many, and so on.

        Raises as ``score``, with the line of the example, and DataError for a pair of texts.
        """
        for chunk, names in single_texts(examples, first, _CHUNK):
            yield chunk, self._score([one.text for one in chunk], names)

    def _score(self, texts: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
        found = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        features: list[Features] = []
        pieces: list[list[Ids]] = []
        for number, (ids, name) in enumerate(zip(found, names, strict=True)):
            if not len(ids) and not self.is_causal:
                raise DataError(f"{name}, {texts[number]!r:.60}, has no token to score")
            pieces.append(self._pieces(ids.astype(np.int32)))
            for piece in pieces[-1]:
                features += self._features(piece, number)
        rows = [len(one.label) for one in features]
        logs = run_batches(self.outputs, features, rows, self.device, precision=self.precision)
        of_texts: list[list[float]] = [[] for _ in texts]
        for one, each in zip(features, logs, strict=True):
            of_texts[one.example] += each[:, 0].tolist()
        return [
            self._answer(text, np.concatenate(of_text), each)
            for text, of_text, each in zip(texts, pieces, of_texts, strict=True)
        ]

    def _pieces(self, ids: Ids) -> list[Ids]:
        """The ids in pieces that fit the model; a language model also says where a text ends."""
        room = self.max_seq_length - (1 if self.is_causal else 2)
        cuts = [ids[start : start + room] for start in range(0, max(1, len(ids)), room)]
        if self.is_causal:
            cuts[-1] = np.append(cuts[-1], np.int32(self.end_id))
        return cuts

    def _features(self, piece: Ids, number: int) -> list[Features]:
        """What the model reads to predict a piece; ``label`` has the ids that it predicts."""
        if self.is_causal:
            ids = np.concatenate([[self.start_id], piece[:-1]], dtype=np.int32)
            types = np.zeros(len(ids), np.uint8)
            return [Features(ids, types, len(ids), example=number, label=piece)]
        features = []
        for place, hidden in enumerate(piece, start=1):
            ids, types = sequence(self.tokenizer, [piece])
            ids[place] = self.tokenizer.mask_token_id
            label = np.array([hidden])
            features.append(
                Features(ids, types, len(ids), example=number, place=place, label=label)
            )
        return features

    def outputs(self, batch: Batch) -> Tensor:
        """(M, 1): ln(probability) of the labels of a batch's features, among the known words."""
        rows, device = batch.rows, batch.rows.input_ids.device
        labels = np.concatenate([one.label for one in batch.features]).astype(np.int64)
        targets = copied_to(torch.from_numpy(labels), device)
        if self.is_causal:
            hidden = self.model.bert(rows).last_hidden_state
            parts = [slice(start, start + _ROWS) for start in range(0, len(hidden), _ROWS)]
            return torch.cat(
                [self._logs(self.model.logits(hidden[part]), targets[part]) for part in parts]
            )
        starts = np.cumsum([0, *rows.lengths[:-1]])
        places = starts + np.array([one.place for one in batch.features])
        positions = copied_to(torch.from_numpy(places), device)
        return self._logs(self.model(rows, masked_lm_positions=positions), targets)

    def _logs(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(M, 1) of logits (M, V) and targets (M,)."""
        known = logits.float()[:, : self.tokenizer.vocab_size]
        return known.log_softmax(-1).gather(1, targets[:, None])

    def _answer(self, text: str, ids: Ids, logs: list[float]) -> dict[str, Any]:
        tokens = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        return {
            "text": text,
            "tokens": [
                {"token": token, "probability": math.exp(each)}
                for token, each in zip(tokens, logs, strict=True)
            ],
            self.measure: math.exp(min(-float(np.mean(logs)), 700.0)),
            "num_tokens": len(logs),
        }


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
        if self.seed < 0:
            raise UsageError(f"{param('seed')} is {self.seed}: expected 0 or more")
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


@documented(OpeningOptions)
class TextGenerator(OfPretraining):
    """A language model of ``tidybert train-lm`` that goes on with a text.

    Raises what ``load`` raises, ConfigError for a BERT, and UsageError.

    Args:
        model: a RUN of train-lm.
    """

    _heads = ("CausalLM", "CausalLM")
    _has_graph = False

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
            hidden = encoder.extend(torch.tensor(ids, device=str(self.device)), cache)
            logits: Tensor = self.model.logits(hidden[-1:])[0, : self.tokenizer.vocab_size]
        found = logits.float().cpu().numpy().astype(np.float64)
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
