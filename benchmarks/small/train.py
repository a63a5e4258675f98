"""Train tidybert-small: masked words, pairs, and a teacher's sentence vector.

FOLDER is what small_prepare wrote.  --start continues from another MODEL with the same tokens.  A
signal ends the run after the step at hand, with a checkpoint; --resume goes on with the same bits,
and also starts a run that has no checkpoint.  pack_model takes a finished RUN.  Each evaluation
tells masked words, pairs, the cosine of [CLS] (the pooler's output) and of the mean to the teacher
on held-out sentences, and the hundred masked words of cloze; it writes the model to RUN-latest.
The rate falls in the last fifth of the steps: train with many, and to finish resume with --change
--max-steps N, where N is a quarter more than the steps that are done.  On a GPU take larger steps:
--device cuda --tokens-per-step 131072 --micro-batch 131072 --teacher-sentences 512 --learning-rate
1.5e-3 --last-teacher-weight 20.

The teacher's vector is the mean of its last states, as sentence-transformers takes it.  The loss is
1 minus the cosine to it, of the pooler's output and of the mean of the last states.  The teacher
reads the sentences as the step needs them, which costs less than storing vectors.
"""

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.harness.script import add_number
from benchmarks.scores.words import answered, figures, read_sentences
from tidybert import MaskFiller, load
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.weights import from_huggingface
from tidybert.cli.output import note
from tidybert.cli.progress import shown_pretraining
from tidybert.corpus.building import build_corpus
from tidybert.corpus.documents import read_documents
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.modeling import BertForPreTraining, BertModel, Rows
from tidybert.modeling.kernels.masked_lm_loss import IGNORED
from tidybert.modeling.rows import pooled
from tidybert.options import MEASURE, STEPS
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.masked_rows import MaskedRows
from tidybert.pretraining.batches.stream import StepBatches
from tidybert.pretraining.pretraining_arguments import DECAY_SHARE, PretrainingArguments
from tidybert.pretraining.pretraining_job import PretrainingJob
from tidybert.pretraining.pretraining_objective import PretrainingObjective, Take
from tidybert.pretraining.pretraining_run import run_pretraining
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS
from tidybert.training.objective import Work
from tidybert.training.precision import autocast
from tidybert.training.reports import Measured
from tidybert.training.runs.run_checkpoints import RunIdentity, TrainingState, weights_sha256
from tidybert.training.runs.run_record import snapshot

_EVERY: Final = 20
_WORD_EMBEDDINGS: Final = "embeddings.word_embeddings.weight"


def small_prepare(parser: argparse.ArgumentParser) -> None:
    """Make what tidybert-small begins from: a MODEL with a smaller vocabulary, and its corpus.

    FOLDER/start is minilm with its most frequent tokens alone, and FOLDER/corpus the text in those
    tokens.  Every 20th document counts tokens.  A step whose result exists is left out.
    """
    parser.add_argument("texts", nargs="+", type=Path, metavar="TEXTS", help="as build-corpus")
    parser.add_argument("--out", type=Path, required=True, help="folder of all results")
    parser.add_argument("--model", default="minilm", help="MODEL whose weights it begins with")
    add_number(parser, "size", 20_000, "tokens to keep")
    parser.add_argument("--held-out", type=float, default=0.005, help="share of the documents")
    given = parser.parse_args()
    origin = ModelDirectory.open(given.model)
    start, corpus = given.out / "start", given.out / "corpus"
    if not start.exists():
        write_start(origin, given, start)
    tokenizer = ModelDirectory(start).tokenizer
    manifest = build_corpus(given.texts, tokenizer, corpus, held_out=given.held_out)
    for name, part in manifest.parts.items():
        tokens, documents = (
            sum(getattr(shard, each) for shard in part) for each in ("num_tokens", "num_documents")
        )
        print(f"{corpus}, {name}: {tokens:,} tokens in {documents:,} documents")


def write_start(origin: ModelDirectory, given: argparse.Namespace, directory: Path) -> None:
    """Write the MODEL with the tokens that every 20th document has most often."""
    counted = [
        text
        for number, document in enumerate(read_documents(given.texts))
        if number % _EVERY == 0
        for text in document
    ]
    tokenizer = origin.tokenizer
    ids, _ = tokenizer.encode_flat(counted, add_special_tokens=False)
    counts = np.bincount(ids, minlength=tokenizer.vocab_size)
    kept = kept_tokens(tokenizer, counts, given.size)
    state = dict(from_huggingface(origin.tensors(), origin.config).tensors)
    state[_WORD_EMBEDDINGS] = state[_WORD_EMBEDDINGS][torch.from_numpy(kept)]
    fewer = BertTokenizer(
        [tokenizer.vocabulary.id_to_token(int(each)) for each in kept],
        tokenizer.do_lower_case,
        strip_accents=tokenizer.strip_accents,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
    )
    save_model_directory(
        directory, model_state=state, config=replace(origin.config, vocab_size=len(kept)),
        tokenizer=fewer, metadata=ModelMetadata(task="pretrain"), architecture="BertModel",
    )  # fmt: skip


def kept_tokens(tokenizer: BertTokenizer, counts: np.ndarray, size: int) -> np.ndarray:
    """(size,) ids, rising: special tokens, the characters that occur, the most frequent others."""
    tokens = tokenizer.vocabulary.tokens
    seen = {char for at in np.flatnonzero(counts) for char in tokens[at].removeprefix(CONTINUATION)}
    needed = np.array(
        [
            token in SPECIAL_TOKENS or (token.removeprefix(CONTINUATION) or token) in seen
            for token in tokens
        ]
    )
    order = np.lexsort((np.arange(len(tokens)), -counts, ~needed))
    return np.sort(order[:size])


# --- the sentences of a step

_NUM_SENTENCES: Final = np.array((1, 1, 1, 2, 3))
"""A text is so many sentences of a document, each number as likely as the others."""
_MOST_MASKED: Final = 0.3
"""Of a text's tokens, the most that are masked."""
_MOST_PROCESSES: Final = 6
_STEPS_AHEAD: Final = 2 * _MOST_PROCESSES


class Sentences:
    """Texts of a part of a corpus, for student and teacher; two numbers name a draw of them."""

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
    """The same from processes that are some steps ahead, each with the Sentences ``given``."""

    def __init__(self, given: tuple[Path, str, int, int], count: int, num_steps: int) -> None:
        self.count, self.num_steps = count, num_steps
        # A process that CUDA has begun in cannot be forked.
        self.pool = ProcessPoolExecutor(
            max(1, min(_MOST_PROCESSES, (os.cpu_count() or 1) - 2)),
            multiprocessing.get_context("spawn"), _open_here, given,
        )  # fmt: skip
        self._following: dict[int, Future[Drawn]] = {}

    def take(self, step: int) -> Drawn:
        for each in range(step, min(step + _STEPS_AHEAD, self.num_steps)):
            if each not in self._following:
                self._following[each] = self.pool.submit(_drawn_here, each, self.count)
        return self._following.pop(step).result()

    def close(self) -> None:
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
        replace(rows, input_ids=rows.input_ids.index_fill(0, positions, mask)), positions,
        rows.input_ids[positions].long(), torch.full((rows.num_sequences,), IGNORED),
    )  # fmt: skip


# --- the teacher

Device = torch.device | str

_WHOLE: Final = 1 / 6
"""Of the sequences with fewer masks, those with none."""
_HELD_OUT: Final = 1000
_PER_BATCH: Final = 50


@dataclass(frozen=True)
class Teaching:
    """Where the sentences and their vectors come from; recorded in arguments.json.

    Weights are of the teacher's loss beside those of words and pairs, the last one in the last
    fifth of the steps.  fewer_share: of a step's sequences, those that keep a random share of their
    masks.
    """

    teacher: str
    teacher_weight: float
    last_teacher_weight: float
    teacher_sentences: int
    fewer_share: float


class Teacher:
    """A frozen encoder and the vectors that it gives."""

    def __init__(self, model: str, device: Device) -> None:
        self.network, _ = load(model)
        self.network.to(device)
        self.device = device

    def vectors(self, rows: Rows) -> Tensor:
        """(B, H): the mean of the last states, on the device."""
        rows = rows.to(self.device)
        with torch.no_grad():
            return pooled(self.network(rows).last_hidden_state, rows, "mean").float()


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
        batch, rows=replace(rows, input_ids=ids), masked_lm_positions=positions[is_kept],
        masked_lm_labels=labels[is_kept],
    )  # fmt: skip


def fewer_masks(batch: MaskedRows, share: float, numbers: np.random.Generator) -> MaskedRows:
    """The batch where a share of the sequences keeps a random share of its masked tokens."""
    count = batch.rows.num_sequences
    some = numbers.uniform(-_WHOLE / (1 - _WHOLE), 1, count)
    kept = np.where(numbers.random(count) < share, some, 1.0)
    sequence = np.repeat(np.arange(count), batch.rows.lengths)[batch.masked_lm_positions.numpy()]
    return with_masks(batch, torch.from_numpy(numbers.random(len(sequence)) < kept[sequence]))


@dataclass(frozen=True)
class TaughtBatches(StepBatches):
    """A step's share with the sentences that it learns from the teacher, and their weight."""

    student_rows: Rows
    teacher_rows: Rows
    teacher_weight: float


class TaughtObjective(PretrainingObjective):
    """Pre-training with a teacher; each evaluation writes the model to ``latest``, a MODEL."""

    model: BertForPreTraining

    def __init__(
        self,
        model: BertForPreTraining,
        take: Take,
        *given: Any,
        teaching: Teaching,
        corpus: Path,
        latest: Path,
        start: ModelDirectory,
        max_seq_length: int,
        **named: Any,
    ) -> None:
        super().__init__(model, partial(self._taken, take), *given, **named)
        self.teaching, self.latest, self.start = teaching, latest, start
        self._given = (corpus, teaching.teacher, max_seq_length, self.arguments.seed)
        self.sentences = Sentences(TokenCorpus(corpus), *self._given[1:])
        self.teacher = Teacher(teaching.teacher, self.device)
        held_out = Sentences(TokenCorpus(corpus, "held-out"), teaching.teacher, max_seq_length, 0)
        # The same texts each time.
        texts = [held_out.draw(number, _PER_BATCH) for number in range(_HELD_OUT // _PER_BATCH)]
        self.held_out = [
            (mine.to(self.device), self.teacher.vectors(theirs)) for mine, theirs in texts
        ]
        most = self.settings.num_steps
        self._first_of_last = most - int(most * DECAY_SHARE)
        self._drawn: Callable[[int], Drawn] = partial(
            drawn, self.sentences, count=teaching.teacher_sentences
        )

    def identity(self, of_plan: RunIdentity) -> RunIdentity:
        """The plan's, the teacher and how it teaches."""
        return replace(
            of_plan,
            settings={**of_plan.settings, **vars(self.teaching)},
            contents={**of_plan.contents, "teacher": weights_sha256(self.teacher.network)},
            kinds={
                **of_plan.kinds, "teacher_weight": STEPS, "last_teacher_weight": STEPS | MEASURE,
                "teacher_sentences": STEPS, "fewer_share": STEPS,
            },
        )  # fmt: skip

    @contextmanager
    def at_work(self, state: TrainingState) -> Iterator[None]:
        """Within the block processes draw the next steps' texts while a GPU computes."""
        if self.device.type != "cuda":
            with super().at_work(state):
                yield
            return
        here = self._drawn
        count, most = self.teaching.teacher_sentences, self.settings.num_steps
        with super().at_work(state), closing(DrawnAhead(self._given, count, most)) as ahead:
            self._drawn = ahead.take
            try:
                yield
            finally:
                self._drawn = here

    def _taken(self, take: Take, step: int, position: Any) -> TaughtBatches:
        """The step's instances, some with fewer masks, and its texts."""
        taken, texts = take(step, position), self._drawn(step)
        numbers = np.random.default_rng([self.arguments.seed, step, len(taken.batches)])
        batches = [fewer_masks(each, self.teaching.fewer_share, numbers) for each in taken.batches]
        batches.append(texts.masked)
        words = sum(len(each.masked_lm_labels) for each in batches)
        taken = replace(taken, batches=batches, counts={**taken.counts, "mlm": words})
        given = self.teaching
        is_last = step >= self._first_of_last
        weight = given.last_teacher_weight if is_last else given.teacher_weight
        return TaughtBatches(**vars(taken), student_rows=texts.student_rows,
                             teacher_rows=texts.teacher_rows, teacher_weight=weight)  # fmt: skip

    def is_other(self, step: int) -> bool:
        """Also whether the teacher's last weight begins, which the loss leaps with."""
        return super().is_other(step) or step == self._first_of_last

    def _pinned(self, step: int, position: Any) -> StepBatches:
        taken: Any = super()._pinned(step, position)
        pinned: TaughtBatches = replace(
            taken,
            student_rows=taken.student_rows.each(Tensor.pin_memory),
            teacher_rows=taken.teacher_rows.each(Tensor.pin_memory),
        )
        return pinned

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        """Also add the teacher's; the last two figures are the sums of the cosines."""
        known = super().add_gradients(work, numbers)
        taken: TaughtBatches = work.batches
        with autocast(self.device, self.is_mixed):
            wanted = self.teacher.vectors(taken.teacher_rows)
            found = cosines(self.model.bert, taken.student_rows.to(self.device), wanted)
        loss = taken.teacher_weight * (1 - found.mean(1)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.cat([known, found.detach().sum(1)])

    def measured(self, step: int, work: Work, figures: Sequence[float], seconds: float) -> Measured:
        """Also the mean cosines."""
        means = torch.tensor(figures[-2:]) / self.teaching.teacher_sentences
        found = super().measured(step, work, figures[:-2], seconds)
        loss = found.loss + work.batches.teacher_weight * float((1 - means).sum())
        return replace(found, loss=loss, figures={**found.figures, **_named(means)})

    def evaluate(self) -> dict[str, Any]:
        """Also the cosines on held-out sentences, and the hundred masked words of cloze."""
        found = super().evaluate()
        with torch.no_grad(), autocast(self.device, self.is_mixed):
            parts = [cosines(self.model.bert, *each) for each in self.held_out]
        means = torch.cat(parts, 1).mean(1)
        loss = found["loss"] + self.teaching.last_teacher_weight * float((1 - means).sum())
        found |= {"loss": loss, **_named(means)}
        save_model_directory(
            self.latest, model_state=snapshot(self.model.state_dict()), config=self.start.config,
            tokenizer=self.start.tokenizer, metadata=ModelMetadata(task="pretrain", metrics=found),
            architecture=BertForPreTraining.__name__,
        )  # fmt: skip
        answers = answered(MaskFiller(self.latest, device="cpu"), read_sentences())
        named = {f"cloze_{name.replace(' ', '_')}": each for name, each in figures(answers).items()}
        return found | named


def _named(means: Tensor) -> dict[str, float]:
    return dict(zip(("cls_cosine", "mean_cosine"), means.tolist(), strict=True))


# --- the command
@dataclass(frozen=True, eq=False, kw_only=True)
class TaughtJob(PretrainingJob):
    """A pre-training that records its teacher."""

    teaching: Teaching

    @property
    def recorded_too(self) -> dict[str, Any]:
        return {**super().recorded_too, **vars(self.teaching)}


_DEFAULTS: Final = {
    "max-steps": 60_000, "tokens-per-step": 8192, "learning-rate": 6e-4, "masked-lm-prob": 0.3,
    "max-seq-length": 128, "long-share": 0.0, "long-seq-length": 256, "precision": "bfloat16",
    "seed": 42, "eval-steps": 500, "save-minutes": 10.0,
}  # fmt: skip


def small_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what small_prepare wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="new RUN")
    parser.add_argument("--start", type=Path, help="MODEL to begin with; default FOLDER/start")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--change", action="store_true", help="resume with other arguments")
    parser.add_argument("--teacher", default="minilm", help="MODEL whose mean is the vector")
    parser.add_argument("--teacher-weight", type=float, default=4.0, help="of the cosines' loss")
    parser.add_argument(
        "--last-teacher-weight", type=float, help="that of the last fifth of the steps"
    )
    add_number(parser, "teacher-sentences", 32, "in a step")
    parser.add_argument("--fewer-share", type=float, default=0.6, help="of pairs, with fewer masks")
    parser.add_argument("--whole-word", action="store_true", help="mask all tokens of a word")
    add_number(parser, "micro-batch", None, "most tokens at once")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    for name, default in _DEFAULTS.items():
        said = f"as pretrain's (default {default})"
        parser.add_argument(f"--{name}", type=type(default), default=default, help=said)
    given = parser.parse_args()
    start, corpus = given.start or given.folder / "start", given.folder / "corpus"
    last = given.teacher_weight if given.last_teacher_weight is None else given.last_teacher_weight
    teaching = Teaching(
        given.teacher, given.teacher_weight, last, given.teacher_sentences, given.fewer_share
    )
    job = TaughtJob(
        start,
        corpus,
        PretrainingArguments(
            recipe="fast",
            save_steps=given.max_steps,
            **{name: getattr(given, name) for name in (
                "max_steps", "tokens_per_step", "learning_rate", "long_share", "long_seq_length",
                "precision", "seed", "eval_steps", "save_minutes", "micro_batch",
            )},
        ),
        instances=InstanceOptions(max_seq_length=given.max_seq_length),
        masking=MaskingOptions(given.masked_lm_prob, given.whole_word),
        teaching=teaching,
        out=given.out,
        resume=given.resume,
        change=given.change,
        device=given.device,
        keep_checkpoints=True,
    )  # fmt: skip
    objective = partial(
        TaughtObjective, teaching=teaching, corpus=corpus,
        latest=given.out.with_name(f"{given.out.name}-latest"), start=ModelDirectory(start),
        max_seq_length=given.max_seq_length,
    )  # fmt: skip
    with shown_pretraining(given.out, None) as shown:
        reporter = replace(shown, metrics=partial(tell, shown.metrics))
        run_pretraining(job, reporter, build_objective=objective)


def tell(shown: Callable[[int, dict[str, Any]], None], step: int, metrics: dict[str, Any]) -> None:
    """Show an evaluation, with what the teacher adds to it."""
    shown(step, metrics)
    names = ("cls_cosine", "mean_cosine", "cloze_first", "cloze_first_5", "cloze_MRR")
    note(f"step {step:,}: " + ", ".join(f"{name} {metrics[name]:.4g}" for name in names))
