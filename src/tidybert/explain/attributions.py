"""How much each piece and word raised a model's answer, by three methods.

- integrated gradients (Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks") on the
  output of the embeddings, from a baseline that has [PAD] in place of each piece but [CLS], [SEP]
  and [MASK];
- gradient x input (Shrikumar et al. 2016), the quick one;
- leave one word out: the answer's score less its score without the word.

n pieces, H width, w words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.data.batching import Batch, collate
from tidybert.data.features import Features
from tidybert.errors import DataError, UsageError, param
from tidybert.explain import plots
from tidybert.explain.explained_text import (
    ExplainedText,
    Floats,
    Table,
    Word,
    escaped,
    pieces_at,
    signed,
)
from tidybert.inference.predictor import Predictor
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import LowerStates
from tidybert.modeling.heads import BertForMaskedLM
from tidybert.reporting.drawing import Picture
from tidybert.tasks.answer import Tagged
from tidybert.tasks.targets import Explained, Target, log_odds
from tidybert.tasks.task import Task
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import Encoding, Span

Outputs = Callable[[Batch, Tensor | None], Tensor]
"""The logits (R, C) of the rows of tokens asked for, or (B, C) of the sequences for None."""


@dataclass(frozen=True)
class ModelTarget(Target):
    """One answer of a model, whose outputs it knows."""

    outputs: Outputs

    def scores(self, batch: Batch, removed: list[tuple[int, ...]] | None = None) -> Tensor:
        """(B,) scores of a batch; ``removed`` names the positions that each sequence lacks."""
        rows = batch.rows
        if not self.positions:
            return self.score(self.outputs(batch, None).float()[:, None])
        starts = np.cumsum([0, *rows.lengths[:-1]])
        gone = removed or [()] * rows.num_sequences
        wanted = [
            start + position - sum(each < position for each in lacking)
            for start, lacking in zip(starts.tolist(), gone, strict=True)
            for position in self.positions
        ]
        found = self.outputs(batch, torch.tensor(wanted)).float()
        return self.score(found.view(rows.num_sequences, len(self.positions), -1))


def task_features(
    predictor: Predictor, encoding: Encoding, text: str, text_pair: str | None
) -> Features:
    """The input as the RUN's task makes it; DataError where it is cut or in several parts."""
    task = predictor.task
    if type(task).target is Task.target:
        raise DataError(
            "attributions explain models that classify, give labels or scores, tag, or answer "
            f"questions; this one was trained to {task.name}"
        )
    examples = task.from_texts([text], None if text_pair is None else [text_pair])
    task.check_inputs(examples, predictor.metadata.inputs)
    features: list[Features] = task.features(
        examples, predictor.tokenizer, predictor.max_seq_length
    )
    if len(features) != 1 or features[0].input_ids.tolist() != encoding.input_ids:
        raise DataError(
            f"the text has {len(encoding)} tokens, and the model reads at most "
            f"{predictor.max_seq_length} at once in one text or pair: shorten it"
        )
    return features[0]


def find_target(
    predictor: Predictor, encoding: Encoding, batch: Batch, label: str | None, at: Span | None
) -> ModelTarget:
    """The answer of a fine-tuned model to an input, or that which ``label`` and ``at`` name."""
    task = predictor.task
    if task.answer is not Tagged and at is not None:
        raise UsageError(f"{param('at')} names a word that is tagged, and this model does not tag")

    def outputs(batch: Batch, wanted: Tensor | None) -> Tensor:
        found: Tensor = task.outputs(predictor.network, batch)
        return found if wanted is None else found[wanted]

    with torch.no_grad():
        logits = outputs(batch, None)
    piece = None if at is None else pieces_at(encoding, at, "at")[0]
    found = task.target(Explained(logits, encoding, batch.features[0], label, piece))
    return ModelTarget(**vars(found), outputs=outputs)


def find_word_target(
    model: BertForMaskedLM,
    tokenizer: BertTokenizer,
    encoding: Encoding,
    batch: Batch,
    word: str | None,
    at: Span | None,
) -> ModelTarget:
    """The likeliest word at the text's [MASK], the one ``at`` a place, or what ``word`` names."""
    places = range(len(encoding)) if at is None else pieces_at(encoding, at, "at")
    masked = [place for place in places if encoding.input_ids[place] == tokenizer.mask_token_id]
    if len(masked) != 1:
        raise DataError(
            f"there are {len(masked)} {tokenizer.mask_token}: write one, spelled so, for the word "
            f"whose prediction is to be explained, or name the characters of one with {param('at')}"
        )

    def outputs(batch: Batch, wanted: Tensor | None) -> Tensor:
        states = model.bert(batch.rows, lower_states=batch.lower_states, output_rows=wanted)
        logits: Tensor = model.mlm(states.last_hidden_state, model.bert.word_embeddings.weight)
        return logits[:, : tokenizer.vocab_size]

    if word is None:
        with torch.no_grad():
            best = int(outputs(batch, torch.tensor(masked))[0].argmax())
    else:
        pieces = tokenizer.pieces_of_word(word)
        if len(pieces) != 1 or pieces == [tokenizer.unk_token]:
            raise UsageError(
                f"{param('target', word)}: expected one token of the vocabulary, not "
                f"{' '.join(pieces) or 'none'}"
            )
        (best,) = tokenizer.convert_tokens_to_ids(pieces)
    (label,) = tokenizer.convert_ids_to_tokens([best])
    return ModelTarget(label, tuple(masked), lambda each: log_odds(each[:, 0], best), outputs)


METHODS: Final = ("integrated-gradients", "gradient-x-input", "leave-one-out")
STEPS: Final = 50
# Rows of tokens that a path's points take together.
_TOKENS_AT_ONCE: Final = 1024
# A gap above this share of the difference deserves more steps.
_WIDE_GAP: Final = 0.05
# Red, green and blue of more and of less than 0.
_MORE: Final = "47,130,200"
_LESS: Final = "207,101,42"


@dataclass(frozen=True, eq=False, repr=False)
class Attributions(ExplainedText):
    """The share of each piece and word in the score of ``target``, one answer, by one of METHODS.

    score: ln(p / (1 - p)) of its probability; a regression's value; start plus end logit.
    values: (n,) of each piece; NaN for leave one word out.
    word_values: (w,) of each of ``words``, the sum over its pieces; NaN where leaving the word out
    would remove what is scored.

    Of integrated gradients alone: baseline_score; steps, the points of the path; completeness_gap,
    score - baseline_score - the sum of ``values``, which is 0 for infinitely many steps.
    """

    method: str
    target: str
    score: float
    baseline_score: float | None
    values: Floats
    word_values: Floats
    completeness_gap: float | None
    steps: int | None

    def facts(self) -> dict[str, object]:
        given = {"method": self.method, "target": self.target, "score": round(self.score, 4)}
        return {**super().facts(), **given}

    def table(self) -> Table:
        """The value of each word, in the order of the texts."""
        rows = [
            [word.text, signed(float(value))]
            for word, value in zip(self.words, self.word_values, strict=True)
        ]
        title = f"{self.method}: what raised the score of {self.target}"
        return Table(title, ("word", "value"), rows, frozenset({"word"}), self.note)

    @property
    def note(self) -> str:
        """The score and, for integrated gradients, whether the values add up to it."""
        if self.completeness_gap is None or self.baseline_score is None:
            return f"score {self.score:.4f}"
        difference = self.score - self.baseline_score
        said = (
            f"score {self.score:.4f}, of the baseline {self.baseline_score:.4f}; the values of all "
            f"tokens add up to their difference {difference:.4f} with a gap of "
            f"{self.completeness_gap:.1e} ({self.steps} steps)"
        )
        if abs(self.completeness_gap) > _WIDE_GAP * max(abs(difference), 1e-6):
            said += "; the gap is wide: take more steps"
        return said

    def _repr_html_(self) -> str:
        """The words shaded by their values, with each number where the pointer is; the table."""
        shades = np.nan_to_num(self.word_values)
        shades = 0.7 * shades / max(np.abs(shades).max(initial=0), 1e-12)
        parts = [
            f'<span style="background:rgba({_LESS if shade < 0 else _MORE},{abs(shade):.3f})" '
            f'title="{signed(value)}">{escaped(word.text)}</span>'
            for word, shade, value in zip(
                self.words, shades.tolist(), self.word_values.tolist(), strict=True
            )
        ]
        return f"<p>{' '.join(parts)}</p>{super()._repr_html_()}"

    def plot(self) -> Picture:
        values = np.nan_to_num(self.word_values)
        return plots.bars([word.text for word in self.words], values, self.table().title)


@dataclass(frozen=True)
class ExplainedInput:
    """The data of the methods: the input, its words, the baseline's ids (n,), and the target."""

    encoder: BertModel
    features: Features
    words: Sequence[Word]
    baseline_ids: npt.NDArray[np.int32]
    target: ModelTarget


def check_method(method: str, steps: int | None) -> int:
    """The number of steps; UsageError for an unknown method, or steps that it does not take."""
    if method not in METHODS:
        raise UsageError(f"{param('method')} {method!r:.60}: expected one of {', '.join(METHODS)}")
    if steps is None:
        return STEPS
    if method != METHODS[0]:
        raise UsageError(f"{param('steps')} has no meaning for {method}; leave it out")
    if steps < 1:
        raise UsageError(f"{param('steps')} is {steps}: expected at least 1")
    return steps


def baseline_ids(features: Features, tokenizer: BertTokenizer) -> npt.NDArray[np.int32]:
    """(n,) ids with [PAD] in place of each piece but [CLS], [SEP] and [MASK]."""
    kept = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id)
    ids = features.input_ids
    return np.where(np.isin(ids, kept), ids, np.int32(tokenizer.pad_token_id))


def attribute(given: ExplainedInput, method: str, steps: int) -> dict[str, Any]:
    """The fields of Attributions by one of METHODS; ``steps`` of ``check_method``."""
    found: dict[str, Any] = {"baseline_score": None, "completeness_gap": None, "steps": None}
    if method == "leave-one-out":
        return found | leave_one_out(given)
    if method != "gradient-x-input":
        return found | integrated_gradients(given, steps)
    # The gradient of the score times the output of the embeddings, one pass each way.
    at_input = _embedded(given, given.features.input_ids)
    gradients, scores = _gradients(given, at_input[None])
    values = (gradients[0] * at_input).sum(-1)
    return found | {"score": float(scores[0]), **_of_words(given, values)}


def integrated_gradients(given: ExplainedInput, steps: int) -> dict[str, Any]:
    """The path from the baseline to the input in ``steps`` points of Gauss and Legendre."""
    features = given.features
    at_input = _embedded(given, features.input_ids)
    baseline = _embedded(given, given.baseline_ids)
    difference = at_input - baseline
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    points = torch.from_numpy((nodes + 1) / 2).to(difference)[:, None, None]
    total = torch.zeros_like(difference)
    many = max(1, _TOKENS_AT_ONCE // len(features.input_ids))
    shares = torch.from_numpy(weights / 2).to(difference)[:, None, None]
    for point, share in zip(torch.split(points, many), torch.split(shares, many), strict=True):
        gradients, _ = _gradients(given, baseline + point * difference)
        total += (gradients * share).sum(0)
    values = (total * difference).sum(-1)
    with torch.no_grad():
        scores = _scores(given, torch.stack((at_input, baseline)))
    score, baseline_score = scores.tolist()
    gap = score - baseline_score - float(values.double().sum())
    of_path = {"baseline_score": baseline_score, "completeness_gap": gap, "steps": steps}
    return {"score": score, **_of_words(given, values), **of_path}


def leave_one_out(given: ExplainedInput) -> dict[str, Any]:
    """The score less the score without each word; the words' order and the pair stay."""
    features, target = given.features, given.target
    removed: list[tuple[int, ...]] = [
        (),
        *(word.pieces for word in given.words if not {*word.pieces} & {*target.positions}),
    ]
    shorter = [
        replace(
            features,
            input_ids=np.delete(features.input_ids, list(pieces)),
            token_type_ids=np.delete(features.token_type_ids, list(pieces)),
        )
        for pieces in removed
    ]
    many = max(1, _TOKENS_AT_ONCE // len(features.input_ids))
    found: list[float] = []
    with torch.inference_mode():
        for begin in range(0, len(shorter), many):
            part = slice(begin, begin + many)
            found += target.scores(collate(shorter[part]), removed[part]).tolist()
    score = found[0]
    losses = dict(zip(removed[1:], (score - each for each in found[1:]), strict=True))
    word_values = [losses.get(word.pieces, np.nan) for word in given.words]
    values = np.full(len(features.input_ids), np.nan, dtype=np.float32)
    of_words = np.array(word_values, dtype=np.float32)
    return {"score": score, "values": values, "word_values": of_words}


def _embedded(given: ExplainedInput, ids: npt.NDArray[np.int32]) -> Tensor:
    """(n, H): the output of the embeddings."""
    with torch.no_grad():
        embedded: Tensor = given.encoder.embeddings(
            collate([replace(given.features, input_ids=ids)]).rows
        )
    return embedded


def _scores(given: ExplainedInput, embedded: Tensor) -> Tensor:
    """(B,) the scores of embeddings (B, n, H) in place of the input's."""
    batch = collate([given.features] * len(embedded))
    return given.target.scores(replace(batch, lower_states=LowerStates(embedded.flatten(0, 1), 0)))


def _gradients(given: ExplainedInput, embedded: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients (B, n, H) of the scores, and the scores (B,)."""
    embedded = embedded.detach().requires_grad_()
    with torch.enable_grad():
        scores = _scores(given, embedded)
        (gradients,) = torch.autograd.grad(scores.sum(), embedded)
    return gradients, scores.detach()


def _of_words(given: ExplainedInput, values: Tensor) -> dict[str, Floats]:
    """Values (n,) of the pieces, and their sums (w,) over each word."""
    pieces = np.asarray(values.numpy(), dtype=np.float32)
    sums = [pieces[list(word.pieces)].sum() for word in given.words]
    return {"values": pieces, "word_values": np.array(sums, dtype=np.float32)}
