"""The number that attributions explain: the score of one answer, from a head's logits.

The score of a class is the log-odds of its probability, ln(p / (1 - p)).  A shift of all logits
does not change it, and it does not flatten where the model is sure.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.errors import DataError, UsageError, param, suggestion
from tidybert.inference.predictor import Predictor
from tidybert.modeling.heads import BertForMaskedLM
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.encoding import Encoding
from tidybert.tokenization.vocabulary import MASK_TOKEN, UNK_TOKEN

Outputs = Callable[[Batch, Tensor | None], Tensor]
"""The logits (R, C) of the rows of tokens asked for, or (B, C) of the sequences for None."""


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


def find_target(
    predictor: Predictor, encoding: Encoding, batch: Batch, label: str | None
) -> Target:
    """The answer of a fine-tuned model to one input, or the one that ``label`` names.

    Raises UsageError for a label that the model does not know, and DataError for a task whose
    answers this cannot explain.
    """
    task = predictor.task
    if isinstance(task, Classification | MultiLabelClassification | Regression):
        return _text_target(predictor, task, batch, label)
    if isinstance(task, QuestionAnswering):
        return _span_target(predictor, task, encoding, batch, label)
    raise DataError(
        f"attributions explain models that classify, give labels or scores, or answer questions; "
        f"this one was trained to {task.name}"
    )


def _text_target(
    predictor: Predictor,
    task: Classification | MultiLabelClassification | Regression,
    batch: Batch,
    label: str | None,
) -> Target:
    def outputs(batch: Batch, wanted: Tensor | None) -> Tensor:
        return task.outputs(predictor.model, batch)

    if isinstance(task, Regression):
        if label is not None:
            raise UsageError(f"{param('target')}: a model that gives scores has no labels")
        return Target("score", (), outputs, lambda logits: logits[:, 0, 0])
    names = list(task.names)
    if label is None:
        with torch.no_grad():
            label = names[int(outputs(batch, None)[0].argmax())]
    if label not in names:
        raise UsageError(
            f"{param('target', label)}: the model knows {', '.join(names[:20])}"
            + suggestion(label, names)
        )
    chosen, temperature = names.index(label), task.temperature
    if isinstance(task, Classification):
        return Target(label, (), outputs, lambda each: log_odds(each[:, 0] / temperature, chosen))
    return Target(label, (), outputs, lambda each: each[:, 0, chosen] / temperature)


def _span_target(
    predictor: Predictor,
    task: QuestionAnswering,
    encoding: Encoding,
    batch: Batch,
    label: str | None,
) -> Target:
    """The sum of the start and end logits of the answer."""
    if label is not None:
        raise UsageError(f"{param('target')}: a question's own answer is explained")

    def outputs(batch: Batch, wanted: Tensor | None) -> Tensor:
        return task.outputs(predictor.model, batch)[wanted]

    with torch.no_grad():
        logits = task.outputs(predictor.model, batch).float().numpy()
    inside = np.array([side == 1 for side in encoding.sequence_ids])
    # Pairs of a start and an end that is not before it, both in the text.
    sums = logits[:, None, 0] + logits[None, :, 1]
    too_long = np.triu(np.ones_like(sums, dtype=bool), task.max_answer_length)
    allowed = np.triu(np.outer(inside, inside)) & ~too_long
    if not allowed.any():
        raise DataError("the text has no piece that could be an answer")
    start, end = np.unravel_index(np.where(allowed, sums, -np.inf).argmax(), sums.shape)
    label = " ".join(encoding.tokens[start : end + 1]).replace(" ##", "")
    return Target(
        label, (int(start), int(end)), outputs, lambda each: each[:, 0, 0] + each[:, 1, 1]
    )


def find_word_target(
    model: BertForMaskedLM, tokenizer: BertTokenizer, encoding: Encoding, batch: Batch,
    word: str | None,
) -> Target:  # fmt: skip
    """The likeliest word at the text's one [MASK], or the piece that ``word`` names.

    Raises DataError for another number of [MASK], and UsageError for a word of several pieces.
    """
    masked = [at for at, each in enumerate(encoding.input_ids) if each == tokenizer.mask_token_id]
    if len(masked) != 1:
        raise DataError(
            f"the text has {len(masked)} {MASK_TOKEN}: write one, in capitals, for the word whose "
            "prediction is to be explained"
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
                f"{param('target', word)}: expected one piece of the vocabulary, not "
                f"{' '.join(pieces) or 'none'}"
            )
        (best,) = tokenizer.convert_tokens_to_ids(pieces)
    (label,) = tokenizer.convert_ids_to_tokens([best])
    return Target(label, tuple(masked), outputs, lambda each: log_odds(each[:, 0], best))
