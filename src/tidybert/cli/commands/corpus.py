"""Commands about a corpus: its vocabulary, its shards of tokens, and what training makes of it."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.commands.texts import note_begin
from tidybert.cli.flags import command
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.progress import shown_progress, shown_reading, shown_texts
from tidybert.corpus.documents import CorpusOptions, CorpusReport, corpus_files, read_documents
from tidybert.errors import DataError, UsageError
from tidybert.files.rows import count_of
from tidybert.options import SEED, Options, option
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.system.cores import available_cores

if TYPE_CHECKING:
    from tidybert.corpus.building import Built
    from tidybert.tokenization import BertTokenizer
    from tidybert.tokenization.basic import BasicTokenizer
    from tidybert.tokenization.learning.vocabulary_training import Fit

# A vocabulary's name, its size, and how it fits the held-out text.
Measured = tuple[str, int, "Fit"]


@flags.flags
class CorpusArgument:
    corpus: list[str]
    """``CORPUS``: Files, folders or globs: text with a blank line between documents, JSON lines,
    Parquet; plain, .gz, .xz or .zst."""


@flags.flags
class HeldOutFlag:
    held_out: float = 0.005
    """Fraction of the documents kept apart to measure on."""


@flags.flags
class VocabFlags(HeldOutFlag):
    """A command that learns from the words of a corpus, and measures on documents held out."""

    out: Path
    """``--out DIR``: New directory to write."""

    def counted(self, corpus: Sequence[str], read: CorpusOptions, basic: "BasicTokenizer") -> Any:
        """The words of the documents that are not held out, and the counts for --json."""
        from tidybert.corpus.screening import HeldOut
        from tidybert.tokenization.learning.vocabulary_training import WordCounts

        report, counts, held = CorpusReport(), WordCounts(basic), HeldOut(self.held_out)
        documents = read_documents(corpus, read, report=report)
        with shown_reading(report) as shown:
            for document in held.rest(shown(documents)):
                counts.add(document)
        counts.finish()
        note(*report.lines(str))
        if counts.num_forgotten:
            note(
                f"{counts.num_forgotten:,} of {counts.num_words:,} words are not counted, to bound "
                f"the memory: rare ones, none more than {counts.max_missed:,} times"
            )
        texts = [line for document in held.documents for line in document]
        if held.is_apart:
            kept = count_of(len(held.documents), "document")
            note(f"measured on {kept} held out, {sum(map(len, texts)):,} characters")
        else:
            note("the corpus has one document: measured on the text that was learned from")
        apart = len(held.documents) if held.is_apart else 0
        return counts, texts, {"documents": report.num_documents, "held_out_documents": apart}


def _measured(name: str, tokenizer: "BertTokenizer", texts: list[str]) -> Measured:
    """How a vocabulary fits the held-out documents."""
    from tidybert.tokenization.learning.vocabulary_training import measure_fit

    return name, tokenizer.vocab_size, measure_fit(tokenizer, texts)


def _described(measured: Measured) -> dict[str, Any]:
    """A vocabulary's figures for --json."""
    name, size, fit = measured
    return {"vocabulary": name, "size": size, **fit.figures()}


def _print_fits(*rows: Measured) -> None:
    """Print a line for each vocabulary, named by the last part of its path."""
    figures = {"size": ",", "characters a token": ".3f", "tokens a word": ".3f"}
    print_table(
        {"vocabulary": "", **figures, "unknown words": ".4%"},
        [
            (Path(name).name, size, one.characters_per_token, one.pieces_per_word, one.unknown_rate)
            for name, size, one in rows
        ],
    )


@command("train-vocab")
class TrainVocab(CorpusArgument, VocabFlags, flags.JsonFlag):
    """Learn a WordPiece vocabulary from a corpus of any size and write a tokenizer directory.

    Give DIR wherever --vocab takes a MODEL; transformers opens it too. The same corpus gives the
    same vocabulary.
    """

    size: int = 30522
    """Tokens of the vocabulary, special tokens included."""
    cased: bool = False
    """``--cased/--uncased``: Keep capitals, or lowercase the text."""
    strip_accents: bool | None = None
    """``--strip-accents/--keep-accents``: Turn é into e, or keep it. If not set: as --cased or
    --uncased implies."""
    character_coverage: float = 0.999975
    """Fraction of the text whose characters get a token; the rarest get none."""
    compare: str | None = None
    """``--compare MODEL``: Also measure this model's vocabulary."""
    read: CorpusOptions

    def run(self) -> None:
        with flags.new_directory(self.out):
            self._train()

    def _train(self) -> None:
        from tidybert.storage.atomic_files import atomic_directory
        from tidybert.tokenization import BasicTokenizer, BertTokenizer
        from tidybert.tokenization.learning.vocabulary_training import (
            check_training,
            train_vocabulary,
        )

        coverage = self.character_coverage
        check_training(self.size, coverage)
        other = None if self.compare is None else BertTokenizer.from_pretrained(self.compare)
        case, accents = not self.cased, self.strip_accents
        counts, texts, figures = self.counted(self.corpus, self.read, BasicTokenizer(case, accents))
        note(f"learning from {len(counts.words):,} different words, {counts.num_words:,} in all")
        learnt = train_vocabulary(counts, self.size, character_coverage=coverage)
        tokenizer = BertTokenizer(learnt.vocabulary, case, strip_accents=accents)
        with atomic_directory(self.out) as directory:
            tokenizer.save(directory)
        self._note_left_out(learnt, counts)

        fit = _measured(str(self.out), tokenizer, texts)
        compared = None if other is None else _measured(str(self.compare), other, texts)
        if not self.json:
            _print_fits(fit, *([] if compared is None else [compared]))
            return
        print_json(
            {
                **_described(fit),
                **figures,
                "words": counts.num_words,
                "different_words": len(counts.words),
                "words_left_out": learnt.num_left_out,
                "different_characters": learnt.num_characters,
                "characters_without_piece": len(learnt.dropped_characters),
                "compare": compared and _described(compared),
            }
        )

    def _note_left_out(self, learnt: Any, counts: Any) -> None:
        """A line about each kind of word or character that the vocabulary leaves out."""
        from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

        if counts.num_too_long:
            note(
                f"{count_of(counts.num_too_long, 'word')} of more than {MAX_CHARS_PER_WORD} "
                "characters will be [UNK]"
            )
        if dropped := learnt.dropped_characters:
            note(
                f"{len(dropped):,} of {learnt.num_characters:,} different characters, the rarest, "
                f"have no token ({' '.join(dropped[:10])}{' …' if len(dropped) > 10 else ''}; ## "
                f"is inside a word); they occur {learnt.num_dropped:,} times; a larger "
                "--character-coverage or --size keeps more"
            )
        if (found := len(learnt.vocabulary)) < self.size:
            note(
                f"{found:,} tokens, fewer than the {self.size:,} asked for: no other two tokens "
                "occur together twice"
            )


@command("extend-vocab")
class ExtendVocab(
    flags.ModelArgument, CorpusArgument, VocabFlags, flags.PickleFlag, flags.JsonFlag
):
    """Give MODEL's vocabulary the tokens that shorten a corpus most, and write a new MODEL.

    They take the [unused] places first. Each begins as the mean of the tokens that it replaces;
    train the new MODEL further on the corpus, so that it learns them.
    """

    add: int = option(at_least=1)
    """``--add N``: Tokens to add at most."""
    read: CorpusOptions

    def run(self) -> None:
        with flags.new_directory(self.out):
            self._extend()

    def _extend(self) -> None:
        from tidybert.checkpoints.converting import ExtensibleModel
        from tidybert.checkpoints.model_directory import ModelDirectory
        from tidybert.tokenization import BasicTokenizer, BertTokenizer
        from tidybert.tokenization.learning.new_pieces import choose_pieces, extend_vocabulary

        out, add = self.out, self.add
        directory = ModelDirectory.open(self.model, allow_pickle=self.allow_pickle)
        old = directory.tokenizer
        old.require_wordpiece("extend-vocab")
        extensible = ExtensibleModel(directory)
        lower, accents, chinese = old.do_lower_case, old.strip_accents, old.tokenize_chinese_chars
        basic = BasicTokenizer(lower, accents, chinese)
        counts, texts, figures = self.counted(self.corpus, self.read, basic)
        pieces = choose_pieces(counts.words, old.vocabulary, add)
        if not pieces:
            raise DataError("no token would shorten this corpus: the vocabulary fits it already")
        vocabulary, places = extend_vocabulary(old.vocabulary, pieces)
        new = BertTokenizer(
            vocabulary, lower, strip_accents=accents, tokenize_chinese_chars=chinese
        )
        replaced = [old.convert_tokens_to_ids(piece.replaces) for piece in pieces]
        extensible.save(out, new, dict(zip(places, replaced, strict=True)))

        before, after = _measured(self.model, old, texts), _measured(str(out), new, texts)
        appended = new.vocab_size - old.vocab_size
        if len(pieces) < add:
            note(
                f"{len(pieces):,} tokens, fewer than the {add:,} asked for: no other would save "
                "three"
            )
        if self.json:
            print_json(
                {
                    **_described(after),
                    "before": _described(before),
                    **figures,
                    "added": len(pieces),
                    "appended": appended,
                    "pieces": [asdict(piece) for piece in pieces],
                }
            )
            return
        shown = [(one.token, " ".join(one.replaces), one.saved) for one in pieces[:SHOWN_PIECES]]
        print_table({"new token": "", "for": "", "tokens saved": ","}, shown)
        if len(pieces) > len(shown):
            print_line(f"and {len(pieces) - len(shown):,} more")
        print_line()
        _print_fits(before, after)
        note(
            f"{len(pieces) - appended:,} in [unused] places, {appended:,} appended; next: "
            f"train {out} further on the corpus"
        )


SHOWN_PIECES: Final = 10
# In a smaller corpus, starting other processes costs more time than they save.
SMALL_CORPUS_BYTES: Final = 4_000_000
LEAST_HELD_OUT: Final = 8
"""Fewer documents measure nothing."""


@command("build-corpus")
class BuildCorpus(CorpusArgument, HeldOutFlag, flags.JsonFlag, flags.ClusterFlags):
    """Tokenise a corpus once, into shards that training maps into memory.

    tidybert leaves out documents whose text came before, and counts them. The same command goes
    on with a build that was stopped, and ends with the same bytes.
    """

    vocab: str
    """``--vocab MODEL``: Model whose vocabulary is used."""
    out: Path
    """``--out DIR``: Directory to write, or to continue."""
    near_duplicates: float | None = None
    """Leave out documents this like an earlier one (0 to 1, such as 0.8), by MinHash."""
    exclude: list[str] | None = None
    """``--exclude FILE``: Leave out documents that share thirteen words in a row with this
    evaluation file. Give it again for more."""
    workers: int | None = option(None, at_least=0)
    """``--workers N``: Processes that tokenise. If not set: one for each core."""
    read: CorpusOptions

    def run(self) -> None:
        from tidybert.corpus.token_shards import is_corpus

        report, was_finished = CorpusReport(), is_corpus(self.out)
        more = {"report": report, "held_out": self.held_out, "least_held_out": LEAST_HELD_OUT}
        manifest = (self._build if self.cluster is None else self._build_on_cluster)(more)
        note(*report.lines(str))
        parts, held = manifest.parts, self.held_out
        counts = {part: sum(each.num_documents for each in parts[part]) for part in parts}
        if held and counts["held-out"] == LEAST_HELD_OUT > 2 * held * sum(counts.values()):
            note(
                f"{LEAST_HELD_OUT} documents are held out, the fewest that tidybert measures on; "
                f"--held-out {held:g} would have kept fewer apart"
            )
        if was_finished and self.cluster is None:
            note(f"the corpus in {self.out} is finished: there is nothing to do")
        self._show(manifest)

    def _build(self, more: dict[str, Any]) -> Any:
        from tidybert.corpus.building import build_corpus
        from tidybert.corpus.screening import RUN, Screening, read_evaluation
        from tidybert.tokenization import BertTokenizer

        sources, workers = corpus_files(self.corpus), self.workers
        if workers is None:
            size = sum(source.num_bytes for source in sources)
            workers = available_cores() if size > SMALL_CORPUS_BYTES else 0
        tokenizer = BertTokenizer.from_pretrained(self.vocab)
        evaluation = read_evaluation(self.exclude) if self.exclude else None
        screening = Screening(self.near_duplicates, evaluation)
        if evaluation is not None and evaluation.num_short:
            note(
                f"{evaluation.num_short:,} texts of --exclude have fewer than {RUN} words: not "
                "sought"
            )
        with _shown() as progress:
            return build_corpus(
                sources,
                tokenizer,
                self.out,
                options=self.read,
                screening=screening,
                num_workers=workers,
                progress=progress,
                **more,
            )

    def _build_on_cluster(self, more: dict[str, Any]) -> Any:
        from tidybert.cluster.corpus_job import CorpusFileJob, build_corpus_on_cluster

        assert self.cluster is not None
        if self.on_error != "stop":
            raise UsageError("--on-error continue: a corpus has all its files, or is not built")
        if self.workers is not None:
            raise UsageError("--workers is for one machine: give --cluster-workers")
        if self.near_duplicates is not None or self.exclude:
            raise UsageError(
                "--near-duplicates and --exclude are for one machine: leave out --cluster"
            )
        with ExitStack() as stack, shown_texts("tokenising") as reporter:
            shown: list[Callable[[Built], None]] = []

            def progress(built: "Built") -> None:
                # The parts are there, and the shards begin.
                if not shown:
                    shown.append(stack.enter_context(_shown()))
                shown[0](built)

            return build_corpus_on_cluster(
                self.corpus,
                CorpusFileJob(model=self.vocab, corpus=self.read),
                self.out,
                cluster=self.cluster,
                num_workers=self.cluster_workers,
                reporter=replace(reporter, begun=note_begin),
                progress=progress,
                **more,
            )

    def _show(self, manifest: Any) -> None:
        counts, names = manifest.counts, ("documents", "sentences", "tokens")
        parts = {
            part: {
                **{one: sum(getattr(shard, f"num_{one}") for shard in shards) for one in names},
                "shards": len(shards),
            }
            for part, shards in manifest.parts.items()
        }
        if self.json:
            print_json({"corpus": str(self.out), "counts": counts, "parts": parts})
            return
        rows = [(part, *row.values()) for part, row in parts.items()]
        print_table({"part": "", **dict.fromkeys((*names, "shards"), ",")}, rows)
        print_line(
            f"{count_of(counts['documents'], 'document')} read: {counts['duplicates']:,} had come "
            f"before, {counts['without_tokens']:,} had no token"
        )
        # A corpus of an earlier version has no such counts.
        if counts.get("near_duplicates"):
            print_line(f"{counts['near_duplicates']:,} were like one before, and are left out")
        if counts.get("excluded"):
            from tidybert.corpus.building import EXCLUDED_FILE

            file = self.out / EXCLUDED_FILE
            print_line(f"{counts['excluded']:,} quote evaluation data, and are left out: {file}")
        note(f"next: tidybert inspect {shlex.quote(str(self.out))}")


@contextmanager
def _shown() -> "Iterator[Callable[[Built], None]]":
    """A function that shows a build's progress, its rate and the time left."""
    first: Built | None = None
    with shown_progress("building") as show:

        def follow(built: "Built") -> None:
            nonlocal first
            first = first or built
            megabytes = (built.num_bytes - first.num_bytes) / 1e6
            show(
                built.bytes_read,
                built.total_bytes,
                lambda seconds, _rate: (
                    f"{built.num_documents:,} documents, {built.num_tokens / 1e6:,.1f} M tokens, "
                    f"{megabytes / seconds:.1f} MB/s"
                ),
            )

        yield follow


# Of next_sentence_label, by objective.
_MEANINGS: Final = {
    "mlm+nsp": ("B follows A", "B is from another document"),
    "mlm+sop": ("A and B are in their order", "A and B are swapped"),
}


@command("inspect")
class Inspect(flags.JsonFlag, Options):
    """Show an instance of a corpus, or a text as one: its segments and its masks.

    Training makes instances as it goes. The same seed, epoch and options give the same instance
    here.
    """

    corpus: str | None = None
    """``CORPUS``: Directory that build-corpus wrote."""
    input: list[str] | None = None
    """``--input TEXT``: Show the masks of this text instead of a corpus. Give it again for a second
    segment."""
    vocab: str | None = None
    """``--vocab MODEL``: Model whose vocabulary --input uses. If not set: tidybert-small."""
    index: int = option(0, at_least=0)
    """``--index N``: Number of the instance, from 0. With --input: another number, other masks."""
    epoch: int = option(0, at_least=0)
    """``--epoch N``: Number of the epoch, from 0."""
    part: Literal["train", "held-out"] = option("train")
    """Part of the corpus: train or held-out."""
    seed: int = option(42, **SEED)
    """Random seed for the instances and their masks."""
    options: InstanceOptions
    masking: MaskingOptions

    def run(self) -> None:
        if (self.corpus is None) == (self.input is None):
            raise UsageError("give a CORPUS, or a text with --input, and not both")
        if self.corpus is not None and self.vocab is not None:
            raise UsageError("--vocab is for --input; a corpus has its own vocabulary")
        shown = self._of_text() if self.corpus is None else self._of_corpus(self.corpus)
        if self.json:
            print_json(shown)
        else:
            _print_instance(shown)

    def _of_text(self) -> dict[str, Any]:
        from tidybert.pretraining.batches.instances import describe_texts
        from tidybert.tokenization import BertTokenizer

        return describe_texts(
            self.input or [],
            BertTokenizer.from_pretrained(self.vocab or DEFAULT_MODEL),
            self.masking,
            max_seq_length=self.options.max_seq_length,
            seed=self.seed,
            epoch=self.epoch,
            index=self.index,
        )

    def _of_corpus(self, corpus: str) -> dict[str, Any]:
        from tidybert.corpus.token_shards import TokenCorpus
        from tidybert.pretraining.batches.instances import PretrainingInstances, describe

        shards = TokenCorpus(corpus, self.part)
        instances = PretrainingInstances(shards, self.options, self.masking, self.seed)
        where = {"corpus": corpus, "part": self.part, "epoch": self.epoch, "index": self.index}
        return where | describe(instances, instances.position(self.epoch, self.index))


def _print_instance(shown: dict[str, Any]) -> None:
    """An instance in plain values: segments, and a row for each prediction."""
    where = f"{shown['part']}, {shown['objective']}, " if "corpus" in shown else ""
    print_line(
        f"instance {shown['index']:,} of epoch {shown['epoch']} ({where}seed {shown['seed']}), "
        f"{len(shown['tokens'])} tokens"
    )
    label = shown.get("next_sentence_label")
    if label is not None:
        print_line(f"next_sentence_label {label}: {_MEANINGS[shown['objective']][label]}")
    print_line()
    print_table(
        {"": "", "from": "", "as the model reads it": ""},
        [(each["segment"], _source(each), each["text"]) for each in shown["segments"]],
    )
    print_line()
    found = shown["predictions"]
    rows = [(each["position"], each["token"], each["became"], each["what"]) for each in found]
    print_table({"position": ",", "token": "", "became": "", "": ""}, rows)
    kinds = ("masked", "replaced", "kept")
    counts = ", ".join(f"{sum(row[-1] == kind for row in rows)} {kind}" for kind in kinds)
    print_line(f"{len(rows)} to predict: {counts}")


def _source(segment: dict[str, Any]) -> str:
    size = count_of(segment["num_tokens"], "token")
    if "source" not in segment:
        return f"--input\n{size}"
    return f"document {segment['document']:,}\n{Path(segment['source']).name}\n{size}"
