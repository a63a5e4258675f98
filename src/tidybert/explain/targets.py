"""The number that attributions explain: the score of one answer, from a head's logits.

The score of a class is the log-odds of its probability, ln(p / (1 - p)).  A shift of all logits
does not change it, and it does not flatten where the model is sure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.errors import DataError, UsageError, param, suggestion
from tidybert.explain.explained_text import pieces_at
from tidybert.inference.predictor import Predictor
from tidybert.modeling.heads import BertForMaskedLM
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.task import SHOWN_LABELS, AnyTask
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.encoding import Encoding, Span
from tidybert.tokenization.vocabulary import MASK_TOKEN, UNK_TOKEN

Outputs = Callable[[Batch, Tensor | None], Tensor]
"""The logits (R, C) of the rows of tokens asked for, or (B, C) of the sequences for None."""

_EXPLAINED: Final = (
    Classification,
    MultiLabelClassification,
    Regression,
    Tagging,
    QuestionAnswering,
)


@dataclass(frozen=True)
class Target:
    """One answer of a model to one input.

    Args:
        label: the answer.
        positions: of the pieces whose logits the score reads; empty where it reads the sequence's.
        outputs: the model.
        score: (B, P, C) logits of B inputs, P being 1 without positions, to scores (B,).
    """

    label: str
    positions: tuple[int, ...]
    outputs: Outputs
    score: Callable[[Tensor], Tensor]

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


def log_odds(logits: Tensor, chosen: int) -> Tensor:
    """(B,) ln(p / (1 - p)) of one class from logits (B, C)."""
    others = torch.cat((logits[:, :chosen], logits[:, chosen + 1 :]), dim=1)
    return logits[:, chosen] - others.logsumexp(1)


def check_task(task: AnyTask) -> None:
    """Raise DataError for a task whose answers ``find_target`` cannot explain."""
    if not isinstance(task, _EXPLAINED):
        raise DataError(
            "attributions explain models that classify, give labels or scores, tag, or answer "
            f"questions; this one was trained to {task.name}"
        )


def task_features(
    predictor: Predictor, encoding: Encoding, text: str, text_pair: str | None
) -> Features:
    """The input as the RUN's task makes it; DataError where it is cut or in several parts."""
    task = predictor.task
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
) -> Target:
    """The answer of a fine-tuned model to one input, or the one that ``label`` names.

    ``at`` names the characters of the word whose tag is explained.  Raises UsageError for a label
    that the model does not know, or an ``at`` that the task does not take.
    """
    task = predictor.task

    def outputs(batch: Batch, wanted: Tensor | None) -> Tensor:
        found: Tensor = task.outputs(predictor.model, batch)
        return found if wanted is None else found[wanted]

    if isinstance(task, Tagging):
        return _tag_target(task, outputs, encoding, batch, label, at)
    if at is not None:
        raise UsageError(f"{param('at')} names a word that is tagged, and this model does not tag")
    if isinstance(task, Classification | MultiLabelClassification | Regression):
        return _text_target(task, outputs, batch, label)
    assert isinstance(task, QuestionAnswering)
    return _span_target(task, outputs, encoding, batch, label)


def _text_target(
    task: Classification | MultiLabelClassification | Regression,
    outputs: Outputs,
    batch: Batch,
    label: str | None,
) -> Target:
    if isinstance(task, Regression):
        if label is not None:
            raise UsageError(f"{param('target')}: a model that gives scores has no labels")
        return Target("score", (), outputs, lambda logits: logits[:, 0, 0])
    with torch.no_grad():
        chosen = _chosen(task, label, outputs(batch, None)[0])
    label, temperature = task.names[chosen], task.temperature
    if isinstance(task, Classification):
        return Target(label, (), outputs, lambda each: log_odds(each[:, 0] / temperature, chosen))
    return Target(label, (), outputs, lambda each: each[:, 0, chosen] / temperature)


def _chosen(task: AnyTask, label: str | None, logits: Tensor) -> int:
    """The number of a label, or of the likeliest one by logits (C,)."""
    if label is None:
        return int(logits.argmax())
    if label not in task.names:
        raise UsageError(
            f"{param('target', label)}: the model knows {', '.join(task.names[:SHOWN_LABELS])}"
            + suggestion(label, task.names)
        )
    return task.label_ids[label]


def _tag_target(
    task: Tagging,
    outputs: Outputs,
    encoding: Encoding,
    batch: Batch,
    label: str | None,
    at: Span | None,
) -> Target:
    """The tag of one word, which the model reads at the word's first piece."""
    if at is None:
        raise UsageError(
            f"the model tags each word: name the characters of one with {param('at')}, such as "
            "(0, 5)"
        )
    (features,) = batch.features
    first = pieces_at(encoding, at, "at")[0]
    row = max(row for row in features.place.rows.tolist() if row <= first)
    with torch.no_grad():
        chosen = _chosen(task, label, outputs(batch, torch.tensor([row]))[0])
    temperature = task.temperature
    return Target(
        task.names[chosen], (row,), outputs, lambda each: log_odds(each[:, 0] / temperature, chosen)
    )


def _span_target(
    task: QuestionAnswering,
    outputs: Outputs,
    encoding: Encoding,
    batch: Batch,
    label: str | None,
) -> Target:
    """The sum of the start and end logits of the answer."""
    if label is not None:
        raise UsageError(f"{param('target')}: a question's own answer is explained")
    with torch.no_grad():
        logits = outputs(batch, None).float().numpy()
    inside = np.array([side == 1 for side in encoding.sequence_ids])
    # Pairs of a start and an end that is not before it, both in the text.
    sums = logits[:, None, 0] + logits[None, :, 1]
    too_long = np.triu(np.ones_like(sums, dtype=bool), task.max_answer_length)
    allowed = np.triu(np.outer(inside, inside)) & ~too_long
    if not allowed.any():
        raise DataError("the text has no token that could be an answer")
    start, end = np.unravel_index(np.where(allowed, sums, -np.inf).argmax(), sums.shape)
    label = " ".join(encoding.tokens[start : end + 1]).replace(" ##", "")
    return Target(
        label, (int(start), int(end)), outputs, lambda each: each[:, 0, 0] + each[:, 1, 1]
    )


def find_word_target(
    model: BertForMaskedLM,
    tokenizer: BertTokenizer,
    encoding: Encoding,
    batch: Batch,
    word: str | None,
    at: Span | None,
) -> Target:
    """The likeliest word at the text's [MASK], or the piece that ``word`` names.

    ``at`` names the characters of one [MASK] of several.  Raises DataError where that leaves none
    or several, and UsageError for a word of several pieces.
    """
    places = range(len(encoding)) if at is None else pieces_at(encoding, at, "at")
    masked = [place for place in places if encoding.input_ids[place] == tokenizer.mask_token_id]
    if len(masked) != 1:
        raise DataError(
            f"there are {len(masked)} {MASK_TOKEN}: write one, in capitals, for the word whose "
            f"prediction is to be explained, or name the characters of one with {param('at')}"
        )

    def outputs(batch: Batch, wanted: Tensor | None) -> Tensor:
        states = model.bert(batch.rows, lower_states=batch.lower_states, output_rows=wanted)
        logits: Tensor = model.mlm(states.last_hidden_state, model.bert.word_embeddings.weight)
        return logits[:, : tokenizer.vocab_size]

    if word is None:
        with torch.no_grad():
            best = int(outputs(batch, torch.tensor(masked))[0].argmax())
    else:
        pieces = [word] if word in tokenizer.vocabulary else tokenizer.tokenize(word)
        if len(pieces) != 1 or pieces == [UNK_TOKEN]:
            raise UsageError(
                f"{param('target', word)}: expected one token of the vocabulary, not "
                f"{' '.join(pieces) or 'none'}"
            )
        (best,) = tokenizer.convert_tokens_to_ids(pieces)
    (label,) = tokenizer.convert_ids_to_tokens([best])
    return Target(label, tuple(masked), outputs, lambda each: log_odds(each[:, 0], best))
