"""The corpus of a language model, which ``tidybert train-lm`` also makes straight from text.

Text is tokenised into a corpus in a temporary folder, which a resumed run makes again: the same
text gives the same corpus.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tidybert.corpus.building import build_corpus
from tidybert.corpus.documents import CorpusReport, read_documents
from tidybert.corpus.manifest import is_corpus
from tidybert.errors import UsageError, param
from tidybert.pretraining.pretraining_job import PretrainingJob
from tidybert.tokenization import BasicTokenizer, BertTokenizer
from tidybert.tokenization.learning.word_counts import WordCounts
from tidybert.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS
from tidybert.training.reports import TrainingCallbacks

HELD_OUT: Final = 0.005
MOST_WORDS: Final = 10_000
"""A text with more different words needs a vocabulary of pieces."""


@contextmanager
def text_corpus(job: PretrainingJob, callbacks: TrainingCallbacks) -> Iterator[Path]:
    """The directory of a language model's corpus, which goes with the block if it is made here.

    Without a ``vocab`` the vocabulary has the text's words.  Raises UsageError for options of text
    where ``job.data`` is a corpus, and for text with too many words; DataError as reading does.
    """
    data, vocab, held_out = job.data, job.vocab, job.held_out
    if not isinstance(data, str | Path):
        raise UsageError(f"{param('data')}: a language model learns from one corpus; give its path")
    if is_corpus(Path(data)):
        for name, value in (("vocab", vocab), ("held_out", held_out)):
            if value is not None:
                raise UsageError(
                    f"{param(name, value)} goes with text; {data} is a corpus, which build-corpus "
                    "has tokenised and divided already"
                )
        yield Path(data)
        return
    if vocab is None:
        tokenizer = tokenizer_of_words(data)
        callbacks.tell(
            f"a vocabulary of the text's words and characters, {tokenizer.vocab_size:,} tokens; "
            f"{param('vocab')} takes another"
        )
    else:
        tokenizer = BertTokenizer.from_pretrained(vocab)
    with TemporaryDirectory(prefix="tidybert-lm-") as folder:
        report, directory = CorpusReport(), Path(folder) / "corpus"
        share = HELD_OUT if held_out is None else held_out
        build_corpus([data], tokenizer, directory, held_out=share, report=report)
        for line in report.lines(callbacks.spell):
            callbacks.tell(line)
        yield directory


def tokenizer_of_words(data: str | Path) -> BertTokenizer:
    """A lower-casing tokenizer whose vocabulary has each word of a text, and each character.

    Raises UsageError for a text with more than MOST_WORDS different words.
    """
    counts = WordCounts(BasicTokenizer())
    for document in read_documents([data]):
        counts.add(document)
    counts.finish()
    if len(counts.words) > MOST_WORDS:
        raise UsageError(
            f"{data} has {len(counts.words):,} different words, and a vocabulary of whole words "
            f"takes at most {MOST_WORDS:,}: learn one with tidybert train-vocab {data} "
            f"--out DIR, and give it as {param('vocab', 'DIR')}"
        )
    first, inner = counts.characters()
    characters = sorted(first + inner)
    tokens = [
        *SPECIAL_TOKENS,
        *characters,
        *(CONTINUATION + each for each in characters if each in inner),
        *sorted(counts.words),
    ]
    return BertTokenizer(dict.fromkeys(tokens))
