"""Which corpora a run reads, in which shares: ``--data wiki:3 --data books:1``."""

import math
from pathlib import Path

from tidybert.corpus.corpora import copied_corpus, joined
from tidybert.corpus.token_shards import MANIFEST_FILE, TokenCorpus
from tidybert.errors import UsageError, param
from tidybert.pretraining.pretraining_job import CACHE_GB, Data
from tidybert.storage.remote_files import is_remote
from tidybert.system.reporter import Reporter


def weighted_corpora(
    data: Data, reporter: Reporter, cache_gb: float = CACHE_GB
) -> tuple[TokenCorpus, tuple[float, ...]]:
    """The corpora as one, and the share of the tokens of each: books:0.5, or a weight of 1."""
    given = [data] if isinstance(data, str | Path) else list(data)
    if not given:
        raise UsageError(f"{param('data')}: name a directory that build-corpus wrote")
    named = [weighted_path(each) for each in given]
    corpora = [
        TokenCorpus(copied_corpus(path, cache_gb, reporter) if is_remote(path) else path)
        for path, _ in named
    ]
    total = sum(weight for _, weight in named)
    shares = tuple(weight / total for _, weight in named)
    contents = [each.contents_sha256() for each in corpora]
    for place, each in enumerate(contents):
        if each in contents[:place]:
            first, second = named[contents.index(each)][0], named[place][0]
            raise UsageError(
                f"{param('data', second)} has the same contents as {first}; give the corpus once, "
                "with a larger weight"
            )
    if len({each.manifest.settings.held_out for each in corpora}) > 1:
        reporter.tell(
            "the corpora hold out different fractions: a document that several of them have may be "
            "both learned from and measured on"
        )
    return joined(corpora), shares


def weighted_path(given: str | Path) -> tuple[str, float]:
    """A corpus's directory and its weight; a directory with a colon in its name stays whole."""
    text = str(given)
    path, colon, weight = text.rpartition(":")
    if not colon or isinstance(given, Path) or "/" in weight or "\\" in weight:
        return text, 1.0
    if Path(text).exists():
        if _is_corpus(path):
            raise UsageError(
                f"{param('data', text)}: there are {path} and {text}; write {text}:1 for the "
                f"second, or {path}/:{weight} for the first"
            )
        return text, 1.0
    try:
        found = float(weight)
    except ValueError:
        if not _is_corpus(path):
            return text, 1.0
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise UsageError(
            f"{param('data', text)}: the weight {weight!r} is not a number above 0; write, for "
            f"example, {path}:3"
        )
    return path, found


def _is_corpus(path: str) -> bool:
    return bool(path) and (Path(path) / MANIFEST_FILE).exists()
