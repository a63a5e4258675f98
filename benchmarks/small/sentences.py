"""The sentences that a step of small_train reads beside the corpus's instances.

A CPU draws them as a step needs them; for a GPU a few processes draw those of the next steps.
"""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.modeling import Rows
from tidybert.modeling.kernels.masked_lm_loss import IGNORED
from tidybert.pretraining.batches.masked_rows import MaskedRows

_NUM_SENTENCES: Final = np.array((1, 1, 1, 2, 3))
"""A text is so many sentences of a document, each number as likely as the others."""
_MOST_MASKED: Final = 0.3
"""Of a text's tokens, the most that are masked."""
_MOST_PROCESSES: Final = 6
_STEPS_AHEAD: Final = 2 * _MOST_PROCESSES


class Sentences:
    """Texts of a part of a corpus as rows, for the student and for the teacher.

    Two numbers name a draw of texts: documents by their length, then sentences evenly.  Texts are
    cut to ``max_seq_length`` of the student's tokens.
    """

    def __init__(self, corpus: TokenCorpus, teacher: str, max_seq_length: int, seed: int) -> None:
        self.corpus = corpus
        self.tokenizer = corpus.tokenizer()
        self.teachers_tokenizer = ModelDirectory.open(teacher).tokenizer
        self.ends = corpus.document_ends(np.arange(corpus.num_documents))
        self.max_seq_length, self.seed = max_seq_length, seed

    def draw(self, number: int, count: int) -> tuple[Rows, Rows]:
        """``count`` texts, as the student and as the teacher reads them."""
        texts = self._texts(count, np.random.default_rng([self.seed, number, 0]))
        read = self.teachers_tokenizer.encode_batch([self.tokenizer.decode(ids) for ids in texts])
        return self._rows(texts), Rows.from_lists(read)

    def masked(self, number: int, count: int) -> MaskedRows:
        """``count`` other texts with a few masks."""
        numbers = np.random.default_rng([self.seed, number, 1])
        return masked_texts(self._rows(self._texts(count, numbers)), self._id("[MASK]"), numbers)

    def _texts(self, count: int, numbers: np.random.Generator) -> list[np.ndarray]:
        places = numbers.integers(self.ends[-1], size=count)
        bounds, sizes = self.corpus.sentence_bounds(self.ends.searchsorted(places, "right"))
        firsts = numbers.integers(sizes - 1)
        lasts = np.minimum(firsts + numbers.choice(_NUM_SENTENCES, size=count), sizes - 1)
        begins = np.cumsum(sizes) - sizes
        starts, ends = bounds[begins + firsts], bounds[begins + lasts]
        return self.corpus.tokens(starts, np.minimum(ends, starts + self.max_seq_length - 2))

    def _rows(self, texts: Sequence[np.ndarray]) -> Rows:
        first, last = [self._id("[CLS]")], [self._id("[SEP]")]
        return Rows.from_lists([np.concatenate([first, ids, last]) for ids in texts])

    def _id(self, token: str) -> int:
        return self.tokenizer.convert_tokens_to_ids([token])[0]


@dataclass(frozen=True)
class Drawn:
    """A step's texts: some with masks, and others for the student and for the teacher."""

    masked: MaskedRows
    student_rows: Rows
    teacher_rows: Rows


def drawn(sentences: Sentences, step: int, count: int) -> Drawn:
    """``count`` texts of either kind for a step."""
    return Drawn(sentences.masked(step, count), *sentences.draw(step, count))


class DrawnAhead:
    """The same from processes that are some steps ahead; close it to end them.

    ``given`` makes the Sentences of each process, with the directory in place of its corpus.
    """

    def __init__(self, given: tuple[Path, str, int, int], count: int, num_steps: int) -> None:
        self.count, self.num_steps = count, num_steps
        # A process that CUDA has begun in cannot be forked.
        self.pool = ProcessPoolExecutor(
            max(1, min(_MOST_PROCESSES, (os.cpu_count() or 1) - 2)),
            multiprocessing.get_context("spawn"), _open_here, given,
        )  # fmt: skip
        self._following: dict[int, Future[Drawn]] = {}

    def take(self, step: int) -> Drawn:
        """The texts of a step."""
        for each in range(step, min(step + _STEPS_AHEAD, self.num_steps)):
            if each not in self._following:
                self._following[each] = self.pool.submit(_drawn_here, each, self.count)
        return self._following.pop(step).result()

    def close(self) -> None:
        """End the processes."""
        self.pool.shutdown(cancel_futures=True)


_in_process: list[Sentences] = []
"""Of a process that draws ahead, its sentences."""


def _open_here(directory: Path, *given: Any) -> None:
    _in_process.append(Sentences(TokenCorpus(directory), *given))


def _drawn_here(step: int, count: int) -> Drawn:
    return drawn(_in_process[0], step, count)


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
