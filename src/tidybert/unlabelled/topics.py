"""Topics: what is in texts without labels, from Python and on disk.

``topics.html`` is a page to look at, ``topics.csv`` a row a topic in the columns of
``--descriptions``, ``assigned.csv`` a row a text; ``topics.json`` has all of it for programs, and
``tree.npy`` what another number of topics is made from.  N texts, n topics.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Unpack

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from tidybert.catalog import DEFAULT_MODEL
from tidybert.data.corrections import csv_text
from tidybert.errors import DataError, UsageError, param
from tidybert.files.rows import as_list, count_of, plain, text_problem
from tidybert.inference.answer_files import npy_header
from tidybert.inference.embedding import Embedder
from tidybert.inference.keywords import OpeningKeywords
from tidybert.inference.loading import check_texts
from tidybert.inference.options import OpeningOptions
from tidybert.inference.zero_shot import cleaned
from tidybert.options import spelled_out
from tidybert.reporting.report_page import beginning, rendered
from tidybert.storage.atomic_files import (
    atomic_directory,
    atomic_write_bytes,
    atomic_write_text,
)
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.limits import REPORT_BYTES, TREE_BYTES
from tidybert.storage.opening import present, read_bytes
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.terminal import ShowsFacts
from tidybert.system.version import installed_version
from tidybert.unlabelled.topic_tree import Indices, TopicTree
from tidybert.unlabelled.topic_words import TopicWords, text_keywords

HTML_FILE: Final = "topics.html"
JSON_FILE: Final = "topics.json"
TREE_FILE: Final = "tree.npy"
TABLES: Final = ("topics.csv", "assigned.csv")
"""People name topics in the first, and note in the second."""
FILES: Final = {HTML_FILE, JSON_FILE, TREE_FILE, *TABLES}

WORDS: Final = 8
"""Words of a topic."""
NAMED: Final = 3
"""Of these, those of its name."""
SHOWN: Final = 5
"""Texts of a topic, and topics that are near to it."""
MAPPED: Final = 2_000
"""Texts on the map at most."""
_DESCRIBED: Final = 200
_ON_THE_MAP: Final = 120


class Topics(ShowsFacts):
    """Texts in topics; see ``tidybert.topics``.

    Args:
        embedder: what made the vectors of the tree.
        texts: all N.
        rows: the lines of the texts in their file, or their places from 0.
        tree: of their vectors.
        number: of topics; None for the number that is found.

    Raises UsageError for a number that the texts do not have.
    """

    def __init__(
        self,
        embedder: Embedder,
        texts: Sequence[str],
        rows: Sequence[int],
        tree: TopicTree,
        number: int | None = None,
    ) -> None:
        most = len(tree.leaves)
        if number is not None and not 2 <= number <= most:
            raise UsageError(
                f"{param('topics', number)}: expected 2 to {most:,}, the texts that differ"
            )
        self.embedder, self.texts, self.rows, self.tree = embedder, texts, rows, tree
        self.number: int = tree.number if number is None else number
        #: (N,) the number of each text's topic, from 1; topic 1 has the most texts.
        self.labels: Indices
        found, self._middles, self._pairs = tree.cut(self.number)
        self.labels = found + 1
        own = self._middles[found]
        #: (N,) how far each text is from the middle of its topic: 0 to 2, 1 less the cosine.
        self.distances = 1 - (tree.directions * own).sum(axis=1)

    def cut(self, number: int) -> "Topics":
        """The same texts in another number of topics, by the same tree."""
        return Topics(self.embedder, self.texts, self.rows, self.tree, number)

    def keywords(self, count: int = 5, reporter: Reporter = SILENT) -> list[list[str]]:
        """The words of each text that say most of what it is about."""
        return text_keywords(self.embedder, self.texts, self.tree.vectors, count, reporter)

    @cached_property
    def topics(self) -> list[dict[str, Any]]:
        """Of each topic: topic, name, words, size, num_different, texts and near; JSON's values."""
        counted = self.tree.counted
        labels = self.labels[counted] - 1
        words = self._words
        cosines = self._middles @ self._middles.T
        np.fill_diagonal(cosines, -2)
        order = counted[np.lexsort((self.distances[counted], labels))]
        sizes = np.bincount(self.labels - 1, minlength=self.number)
        different = np.bincount(labels, minlength=self.number)
        starts = np.cumsum(different) - different
        names = _names([words.of([at], WORDS) for at in range(self.number)])
        return [
            {
                "topic": at + 1,
                "name": names[at],
                "words": words.of([at], WORDS),
                "size": int(sizes[at]),
                "num_different": int(different[at]),
                "texts": [
                    {
                        "row": self.rows[text],
                        "text": self.texts[text],
                        "distance": round(float(self.distances[text]), 4),
                    }
                    for text in order[starts[at] : starts[at] + min(different[at], SHOWN)].tolist()
                ],
                "near": [
                    {"topic": other + 1, "cosine": round(float(cosines[at, other]), 4)}
                    for other in np.argsort(-cosines[at], kind="stable")[:SHOWN].tolist()
                    if other != at
                ],
            }
            for at in range(self.number)
        ]

    @cached_property
    def _words(self) -> TopicWords:
        counted = self.tree.counted
        texts = [self.texts[at] for at in counted.tolist()]
        return TopicWords(texts, self.labels[counted] - 1, self.number)

    @property
    def descriptions(self) -> dict[str, str]:
        """By the name of each topic, the texts nearest to its middle: for ``zero_shot``."""
        return {
            each["name"]: " ".join(beginning(one["text"], _DESCRIBED) for one in each["texts"][:1])
            for each in self.topics
        }

    def to_pandas(self) -> Any:
        """A DataFrame with a row a text: row, text, label (the topic's name), topic, distance.

        Raises UsageError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UsageError("to_pandas() needs pandas: pip install pandas") from None
        return pandas.DataFrame(self._assigned())

    def facts(self) -> dict[str, object]:
        return {
            "texts": len(self.texts),
            "topics": self.number,
            "model": self.embedder.facts()["model"],
        }

    def _assigned(self) -> list[dict[str, Any]]:
        names = [each["name"] for each in self.topics]
        return [
            {"row": row, "text": text, "label": names[label - 1], "topic": label, "distance": far}
            for row, text, label, far in zip(
                self.rows, self.texts, self.labels.tolist(), self.distances.tolist(), strict=True
            )
        ]

    def _tree(self) -> dict[str, Any]:
        """The topics as a tree: each part has its size and its words, or is a topic."""
        sizes = [each["size"] for each in self.topics]
        parts: list[dict[str, Any]] = [{"topic": at + 1} for at in range(self.number)]
        members = [[at] for at in range(self.number)]
        for one, other in self._pairs:
            members.append(members[one] + members[other])
            parts.append(
                {
                    "size": sum(sizes[at] for at in members[-1]),
                    "words": self._words.of(members[-1], SHOWN),
                    "parts": [parts[one], parts[other]],
                }
            )
        return parts[-1]

    def _map(self) -> list[dict[str, Any]]:
        """A place on a plane, the topic and the beginning of texts: t-SNE of their vectors."""
        drawn = self.tree.leaves
        drawn = np.sort(np.random.default_rng(0).permutation(drawn)[:MAPPED])
        perplexity = min(30.0, (len(drawn) - 1) / 3)
        # Several threads add up in another order each time.
        with threadpool_limits(1):
            layout = TSNE(init="pca", random_state=0, max_iter=500, perplexity=perplexity)
            places = layout.fit_transform(self.tree.directions[drawn])
        return [
            {
                "x": round(float(x), 2),
                "y": round(float(y), 2),
                "topic": int(self.labels[at]),
                "text": beginning(" ".join(self.texts[at].split()), _ON_THE_MAP),
            }
            for at, (x, y) in zip(drawn.tolist(), places, strict=True)
        ]

    def contents(self, data: str = "texts") -> dict[str, Any]:
        """The values of topics.json."""
        return {
            "tidybert_version": installed_version(),
            "data": data,
            "model": str(self.embedder.facts()["model"]),
            "num_texts": len(self.texts),
            "num_different": len(self.tree.counted),
            "num_in_tree": len(self.tree.leaves),
            "num_topics": self.number,
            "num_found": self.tree.number,
            "topics": self.topics,
            "tree": self._tree(),
            "map": self._map(),
        }

    def save(
        self, directory: str | Path, data: str = "texts", keywords: Sequence[Any] = ()
    ) -> Path:
        """Write the page and the files beside it, or replace those of an earlier call.

        Returns the path of the page.  Raises UsageError for a directory that holds other files, or
        a table that somebody changed.
        """
        # A link or "." would be replaced itself, not the directory that it leads to.
        target = Path(directory).resolve()
        check_topics_directory(target)
        tree = self.tree
        parts = (tree.vectors, tree.first, tree.merges, np.array([tree.number]))
        kept = b"".join(npy_header(each.dtype.str, each.shape) + each.tobytes() for each in parts)
        contents = self.contents(data)
        assigned = self._assigned()
        columns = ["row", "text", "label", "topic", "distance"]
        if keywords:
            columns.append("keywords")
            assigned = [
                {**one, "keywords": ", ".join(own)}
                for one, own in zip(assigned, keywords, strict=True)
            ]
        topics = [
            {
                **each,
                "label": each["name"],
                "text": self.descriptions[each["name"]],
                "words": ", ".join(each["words"]),
            }
            for each in self.topics
        ]
        described = csv_text(topics, ["label", "text", "topic", "size", "words"])
        written = described, csv_text(assigned, columns)
        tables = dict(zip(TABLES, written, strict=True))
        made_from = {
            "texts": _texts_hash(self.texts),
            "encoder": self.embedder.fingerprint,
            "tree": hashlib.sha256(kept).hexdigest(),
            "tables": {
                name: hashlib.sha256(each.encode()).hexdigest() for name, each in tables.items()
            },
        }
        text = json.dumps({**contents, "made_from": made_from}, ensure_ascii=False, indent=1)
        with atomic_directory(target) as aside:
            atomic_write_text(aside / HTML_FILE, rendered("topics.html.j2", contents=contents))
            atomic_write_text(aside / JSON_FILE, text + "\n")
            atomic_write_bytes(aside / TREE_FILE, kept)
            for name, each in tables.items():
                atomic_write_text(aside / name, each)
        return Path(directory) / HTML_FILE


def check_topics_directory(directory: Path) -> None:
    """Raise UsageError for a file, a directory with what is not of topics, or a changed table."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise UsageError(f"{param('out', directory)} is a file; name a directory")
    foreign = sorted({path.name for path in directory.iterdir()} - FILES)
    if foreign or not present(directory / JSON_FILE):
        holds = f"{foreign[0]!r}, which is not of topics" if foreign else "no topics"
        raise UsageError(f"{param('out', directory)} holds {holds}; name a new directory")
    written = _made_from(directory).get("tables", {})
    for name in TABLES:
        path = directory / name
        if not present(path):
            continue
        content = read_bytes(path, REPORT_BYTES, error=DataError)
        if hashlib.sha256(content).hexdigest() != written.get(name):
            raise UsageError(
                f"{path} was changed since tidybert wrote it, and would be replaced: move it to "
                "another place, or name a new directory"
            )


def _made_from(directory: Path) -> Mapping[str, Any]:
    where = directory / JSON_FILE
    found = read_json_object(where, REPORT_BYTES, error=DataError).get("made_from")
    if not isinstance(found, Mapping):
        raise DataError(f"{where} does not say what it was made from; remove {directory}")
    return found


def kept_tree(directory: Path, embedder: Embedder, texts: Sequence[str]) -> TopicTree | None:
    """The tree of an earlier call, if it is of these texts and this encoder; None without one.

    Raises UsageError for another's, and DataError for damage.
    """
    check_topics_directory(directory)
    if not directory.exists():
        return None
    made_from = _made_from(directory)
    again = f"remove {directory}, or name a new directory"
    if made_from.get("encoder") != embedder.fingerprint:
        raise UsageError(f"{directory} has topics by another model; {again}")
    if made_from.get("texts") != _texts_hash(texts):
        raise UsageError(f"{directory} has the topics of other texts; {again}")
    content = read_bytes(directory / TREE_FILE, TREE_BYTES)
    if made_from.get("tree") != hashlib.sha256(content).hexdigest():
        raise DataError(f"{directory / TREE_FILE} is damaged; {again}")
    stream = io.BytesIO(content)
    *parts, number = (np.load(stream, allow_pickle=False) for _ in range(4))
    tree = TopicTree(*parts)
    tree.__dict__["number"] = int(number[0])
    return tree


def _names(words: Sequence[Sequence[str]]) -> list[str]:
    """A name for each topic: its first words, more where another has the same; unlike all."""
    found, seen = list[str](), set[str]()
    for at, own in enumerate(words, start=1):
        tries = [" ".join(own[:count]) for count in range(min(NAMED, len(own)), len(own) + 1)]
        tries.append(" ".join([*own[:NAMED], f"no. {at}"]))
        name = next(each for each in tries if each and cleaned(each) not in seen)
        seen.add(cleaned(name))
        found.append(name)
    return found


def _texts_hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@spelled_out(OpeningOptions)
def topics(
    texts: Any,
    number: int | None = None,
    *,
    model: str | Path = DEFAULT_MODEL,
    progress: bool = False,
    **options: Unpack[OpeningKeywords],
) -> Topics:
    """Find what topics are in texts without labels.

    Args:
        texts: several texts, or a column of any library.
        number: of topics; None for the number that is found.
        model: a MODEL, whose vectors are compared.
        progress: show a bar.
        options: those of ``Embedder`` that open a model.

    Returns Topics: ``topics`` describes them, ``labels`` has the topic of each text,
    ``to_pandas()`` a frame, ``cut(n)`` another number of topics, ``save(directory)`` the page.

    Raises DataError for a blank text, for fewer than 20 different ones, and what opening ``model``
    raises.
    """
    given = _given(texts)
    if blank := [at for at, one in enumerate(given) if not one.strip()]:
        raise DataError(
            f"texts[{blank[0]}] is blank, one of {count_of(len(blank), 'blank text')}: these have "
            "no topic; leave them out"
        )
    embedder = Embedder(model, **options)
    tree = TopicTree.of(embedder.embed(given, progress=progress))
    return Topics(embedder, given, range(len(given)), tree, number)


@spelled_out(OpeningOptions)
def keywords(
    texts: Any,
    count: int = 5,
    *,
    model: str | Path = DEFAULT_MODEL,
    progress: bool = False,
    **options: Unpack[OpeningKeywords],
) -> list[list[str]]:
    """Find the words, and pairs of words, that say most of what each text is about.

    Args:
        texts: several texts, or a column of any library.
        count: words or pairs of a text at most.
        model: a MODEL, whose vectors are compared.
        progress: show a bar.
        options: those of ``Embedder`` that open a model.

    Returns a list a text, the most telling first; other texts make no difference to it.
    """
    given = _given(texts)
    embedder = Embedder(model, **options)
    vectors = embedder.embed(given, progress=progress)
    return text_keywords(embedder, given, vectors, count, SILENT)


def _given(texts: Any) -> list[str]:
    check_texts(texts)
    found = [plain(each) for each in as_list(texts, "texts")]
    if odd := [at for at, one in enumerate(found) if text_problem("text", one)]:
        raise DataError(f"texts[{odd[0]}]: {text_problem('text', found[odd[0]])}")
    return found
