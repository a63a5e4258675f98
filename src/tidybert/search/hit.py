"""What a search finds."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Hit:
    """A text that was found.

    Args:
        position: its place in the index, from 0.
        row: its line in the file.
        columns: the other columns of its row.
        score: the cosine of its vector and the query's, from -1 to 1.
        rerank_score: what a cross-encoder says of query and text, if one was asked.
        rerank_truncated: whether it read only the start of them.
    """

    position: int
    row: int
    text: str
    columns: dict[str, Any]
    score: float
    rerank_score: float | None = None
    rerank_truncated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = asdict(self)
        if self.rerank_score is None:
            del found["rerank_score"], found["rerank_truncated"]
        return found
