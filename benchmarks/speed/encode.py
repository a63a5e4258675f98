"""Embed sentences beside sentence-transformers' encode, and compare their vectors.

    python -m benchmarks encode --texts 2000 --rounds 3

encode sorts the texts that it gets by length, and so does tidybert.  *All at once* hands over all
texts; *in file order* hands over 32 at a time, as a program does that reads a stream.  CPU
seconds on one thread hardly depend on what else the machine does.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.harness.datasets import mixed_texts
from benchmarks.harness.rounds import at_least, in_turn, note, record, script_parser
from benchmarks.harness.tables import markdown

BATCH: Final = 32
WAYS: Final = ("in file order", "all at once")


def encoders(model: str) -> dict[str, Callable[[list[str]], Any]]:
    """By side, texts to vectors (n, d) of length 1."""
    from sentence_transformers import SentenceTransformer

    from tidybert.catalog import find_model
    from tidybert.inference.embedding import Embedder

    theirs = SentenceTransformer(str(find_model(model)), device="cpu")
    return {
        "tidybert": Embedder(model).embed,
        "sentence-transformers": lambda texts: theirs.encode(texts, batch_size=BATCH),
    }


def timed(encode: Callable[[list[str]], Any], texts: Sequence[str], way: str) -> tuple[Any, float]:
    """The vectors, and the processor's seconds."""
    size = BATCH if way == WAYS[0] else len(texts)
    begin = time.process_time()
    found = [encode(list(texts[at : at + size])) for at in range(0, len(texts), size)]
    return np.concatenate(found), time.process_time() - begin


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--texts", type=at_least(1), default=2000)
    parser.add_argument("--rounds", type=at_least(1), default=3)
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    source, texts = mixed_texts()
    texts = texts[: given.texts]
    sides = encoders(given.model)
    seconds: dict[tuple[str, str], list[float]] = {}
    vectors: dict[str, Any] = {}
    for number in range(given.rounds):
        for way in WAYS:
            for side in in_turn(tuple(sides), number):
                vectors[side], taken = timed(sides[side], texts, way)
                seconds.setdefault((way, side), []).append(taken)
            note(f"round {number + 1}: {way} {[f'{each[-1]:.1f}' for each in seconds.values()]}")
    rows = []
    for way in WAYS:
        ours, theirs = (seconds[way, side] for side in sides)
        ratio = median(other / one for one, other in zip(ours, theirs, strict=True))
        rate = [f"{len(texts) / median(each):,.1f}" for each in (ours, theirs)]
        rows.append([way, *rate, f"{ratio:.2f}"])
    print("\n".join(markdown([f"texts a CPU second, {source}", *sides, "ratio"], rows)))
    ours, theirs = vectors.values()
    print(f"\n{len(texts):,} texts, {ours.shape[1]} numbers; the largest difference of a number is "
          f"{np.abs(ours - theirs).max():.1e}; {record()['machine']['cpu']}")  # fmt: skip


if __name__ == "__main__":
    main()
