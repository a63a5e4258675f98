"""Masked words and pairs, while [CLS] and the mean keep a frozen teacher's sentence vector.

Each step draws sentences of the corpus beside its masked ones.  The teacher's vector is the mean of
its last states, as sentence-transformers takes it.  The loss is 1 minus the cosine to it, of the
pooler's output and of the mean of the last states.  The teacher reads the sentences as the step
needs them, which costs less than storing vectors: it sees each one once, forward only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.scores.cloze import answered, figures, read_sentences
from tidybert import MaskFiller, load
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.modeling import BertForPreTraining, BertModel, Rows
from tidybert.modeling.kernels.masked_lm_loss import IGNORED
from tidybert.modeling.rows import pooled
from tidybert.pretraining.batches.masked_rows import MaskedRows
from tidybert.pretraining.batches.stream import StepBatches
from tidybert.pretraining.pretraining_objective import PretrainingObjective
from tidybert.training.changes import MEASURE, STEPS
from tidybert.training.objective import Work
from tidybert.training.precision import autocast
from tidybert.training.reports import Measured
from tidybert.training.runs.run_identity import RunIdentity, weights_sha256

Device = torch.device | str

_NUM_SENTENCES: Final = (1, 1, 1, 2, 3)
"""A text is so many sentences of a document, each number as likely as the others."""
_MOST_MASKED: Final = 0.3
"""Of a text's tokens, the most that are masked."""
_WHOLE: Final = 1 / 6
"""Of the sequences with fewer masks, those with none."""
_HELD_OUT: Final = 1000
_PER_BATCH: Final = 50


@dataclass(frozen=True)
class Teaching:
    """Where the sentences and their vectors come from; recorded in arguments.json.

    teacher: a MODEL.  teacher_weight: of the sum of both losses, beside those of words and pairs.
    teacher_sentences: texts in each step, and as many with masked words.  fewer_share: of a step's
    sequences, those that keep a random share of their masked words.
    """

    teacher: str
    teacher_weight: float
    teacher_sentences: int
    fewer_share: float


class Sentences:
    """Texts of a part of a corpus as rows, for the student and for the teacher.

    Two numbers name a draw of texts: documents by their length, then sentences evenly.  Texts are
    cut to ``max_seq_length`` of the student's tokens.  The teacher is on the device.
    """

    def __init__(
        self, corpus: TokenCorpus, teacher: str, max_seq_length: int, seed: int, device: Device
    ) -> None:
        self.corpus = corpus
        self.tokenizer = corpus.tokenizer()
        network, self.teachers_tokenizer = load(teacher)
        self.network, self.device = network.to(device), device
        self.ends = corpus.document_ends(np.arange(corpus.num_documents))
        self.max_seq_length, self.seed = max_seq_length, seed

    def draw(self, number: int, count: int, kind: int = 0) -> tuple[Rows, Rows]:
        """``count`` texts, as the student and as the teacher reads them."""
        numbers = np.random.default_rng([self.seed, number, kind])
        places = numbers.integers(self.ends[-1], size=count)
        texts = [
            self._text(document, numbers)
            for document in np.searchsorted(self.ends, places, "right")
        ]
        first, last = self.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        read = self.teachers_tokenizer.encode_batch([self.tokenizer.decode(ids) for ids in texts])
        return Rows.from_lists([[first, *ids, last] for ids in texts]), Rows.from_lists(read)

    def _text(self, document: int, numbers: np.random.Generator) -> list[int]:
        bounds, _ = self.corpus.sentence_bounds(np.array([document]))
        first = int(numbers.integers(len(bounds) - 1))
        last = min(first + int(numbers.choice(_NUM_SENTENCES)), len(bounds) - 1)
        (ids,) = self.corpus.tokens(bounds[[first]], bounds[[last]])
        return [int(each) for each in ids[: self.max_seq_length - 2]]

    def vectors(self, rows: Rows) -> Tensor:
        """(B, H): the teacher's vectors, on the device."""
        rows = rows.to(self.device)
        with torch.no_grad():
            return pooled(self.network(rows).last_hidden_state, rows, "mean").float()


def held_out_vectors(sentences: Sentences) -> list[tuple[Rows, Tensor]]:
    """The same texts each time, as the student reads them, with the teacher's vectors."""
    drawn = [sentences.draw(number, _PER_BATCH) for number in range(_HELD_OUT // _PER_BATCH)]
    return [(mine.to(sentences.device), sentences.vectors(theirs)) for mine, theirs in drawn]


def cosines(encoder: BertModel, rows: Rows, wanted: Tensor) -> Tensor:
    """(2, B): the cosines of the pooler's output and of the mean to vectors (B, H)."""
    found = encoder(rows)
    mean = pooled(found.last_hidden_state, rows, "mean")
    return torch.stack(
        [functional.cosine_similarity(each.float(), wanted) for each in (found.pooler_output, mean)]
    )


def with_masks(batch: MaskedRows, is_kept: Tensor) -> MaskedRows:
    """The batch with only those of its masked tokens that ``is_kept`` (M,) names."""
    rows, positions, labels = batch.rows, batch.masked_lm_positions, batch.masked_lm_labels
    ids = rows.input_ids.index_copy(0, positions[~is_kept], labels[~is_kept])
    return replace(
        batch,
        rows=replace(rows, input_ids=ids),
        masked_lm_positions=positions[is_kept],
        masked_lm_labels=labels[is_kept],
    )


def fewer_masks(batch: MaskedRows, share: float, numbers: np.random.Generator) -> MaskedRows:
    """The batch where a share of the sequences keeps a random share of its masked tokens."""
    count = batch.rows.num_sequences
    some = numbers.uniform(-_WHOLE / (1 - _WHOLE), 1, count)
    kept = np.where(numbers.random(count) < share, some, 1.0)
    sequence = np.repeat(np.arange(count), batch.rows.lengths)[batch.masked_lm_positions.numpy()]
    return with_masks(batch, torch.from_numpy(numbers.random(len(sequence)) < kept[sequence]))


def masked_texts(rows: Rows, mask: int, numbers: np.random.Generator) -> MaskedRows:
    """Texts between [CLS] and [SEP] with 1 to _MOST_MASKED of their tokens masked, for no pair."""
    chosen, first = [], 0
    for length in rows.lengths:
        wanted = round(numbers.random() * _MOST_MASKED * (length - 2))
        places = numbers.choice(length - 2, size=max(1, wanted), replace=False)
        chosen.append(first + 1 + np.sort(places))
        first += length
    positions = torch.from_numpy(np.concatenate(chosen))
    return MaskedRows(
        replace(rows, input_ids=rows.input_ids.index_fill(0, positions, mask)),
        positions,
        rows.input_ids[positions].long(),
        torch.full((rows.num_sequences,), IGNORED),
    )


@dataclass(frozen=True)
class TaughtBatches(StepBatches):
    """A step's share with the sentences that it learns from the teacher."""

    student_rows: Rows
    teacher_rows: Rows


class TaughtObjective(PretrainingObjective):
    """Pre-training with a teacher, in one process.

    Args:
        corpus: the directory of the corpus.
        latest: where each evaluation writes the model, as a MODEL that pack_model takes.
        start: the MODEL that the run begins with.
        max_seq_length: most tokens of a text.
    """

    model: BertForPreTraining

    def __init__(
        self,
        *given: Any,
        teaching: Teaching,
        corpus: Path,
        latest: Path,
        start: ModelDirectory,
        max_seq_length: int,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self.teaching, self.latest, self.start = teaching, latest, start
        seed, reading = self.arguments.seed, (teaching.teacher, max_seq_length)
        self.sentences = Sentences(TokenCorpus(corpus), *reading, seed, self.device)
        held_out = Sentences(TokenCorpus(corpus, "held-out"), *reading, 0, self.device)
        self.held_out = held_out_vectors(held_out)

    def identity(self, of_plan: RunIdentity) -> RunIdentity:
        """The plan's, the teacher and how it teaches."""
        return replace(
            of_plan,
            settings={**of_plan.settings, **vars(self.teaching)},
            contents={**of_plan.contents, "teacher": weights_sha256(self.sentences.network)},
            kinds={
                **of_plan.kinds,
                "teacher_weight": STEPS | MEASURE,
                "teacher_sentences": STEPS,
                "fewer_share": STEPS,
            },
        )

    def work(self, step: int, progress: Any) -> Work:
        """The step's instances, and its sentences."""
        found = super().work(step, progress)
        if found.batches is None:
            return found
        taken: StepBatches = found.batches
        count, mask = self.teaching.teacher_sentences, self.sentences.tokenizer.mask_token_id
        numbers = np.random.default_rng([self.arguments.seed, step, len(taken.batches)])
        batches = [fewer_masks(each, self.teaching.fewer_share, numbers) for each in taken.batches]
        batches.append(masked_texts(self.sentences.draw(step, count, kind=1)[0], mask, numbers))
        words = sum(len(each.masked_lm_labels) for each in batches)
        taken = replace(taken, batches=batches, counts={**taken.counts, "mlm": words})
        mine, theirs = self.sentences.draw(step, count)
        taught = TaughtBatches(**vars(taken), student_rows=mine, teacher_rows=theirs)
        return replace(found, batches=taught)

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        """Also add the teacher's; the last two figures are the sums of the cosines."""
        known = super().add_gradients(work, numbers)
        taken: TaughtBatches = work.batches
        with autocast(self.device, self.is_mixed):
            wanted = self.sentences.vectors(taken.teacher_rows)
            found = cosines(self.model.bert, taken.student_rows.to(self.device), wanted)
        self._vector_loss(found.mean(1)).backward()  # type: ignore[no-untyped-call]
        return torch.cat([known, found.detach().sum(1)])

    def _vector_loss(self, means: Tensor) -> Tensor:
        return self.teaching.teacher_weight * (1 - means).sum()

    def measured(self, step: int, work: Work, figures: Sequence[float], seconds: float) -> Measured:
        """Also the mean cosines."""
        means = torch.tensor(figures[-2:]) / self.teaching.teacher_sentences
        found = super().measured(step, work, figures[:-2], seconds)
        loss = found.loss + float(self._vector_loss(means))
        return replace(found, loss=loss, figures={**found.figures, **_named(means)})

    def evaluate(self) -> dict[str, Any]:
        """Also the cosines on held-out sentences, and the hundred masked words of cloze."""
        found = super().evaluate()
        with torch.no_grad():
            parts = [cosines(self.model.bert, *each) for each in self.held_out]
        means = torch.cat(parts, 1).mean(1)
        found |= {"loss": found["loss"] + float(self._vector_loss(means)), **_named(means)}
        self._write(found)
        answers = answered(MaskFiller(self.latest, device="cpu"), read_sentences())
        named = {f"cloze_{name.replace(' ', '_')}": each for name, each in figures(answers).items()}
        return found | named

    def _write(self, metrics: dict[str, Any]) -> None:
        save_model_directory(
            self.latest,
            model_state=self.model.state_dict(),
            config=self.start.config,
            tokenizer=self.start.tokenizer,
            metadata=ModelMetadata(task="pretrain", metrics=metrics),
            architecture=BertForPreTraining.__name__,
        )


def _named(means: Tensor) -> dict[str, float]:
    return dict(zip(("cls_cosine", "mean_cosine"), means.tolist(), strict=True))
