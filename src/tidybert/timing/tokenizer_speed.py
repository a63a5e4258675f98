"""Time the tokeniser and Hugging Face's, both on one thread, in one run, on the same lines.

Ours is timed in three states: cold (it has seen nothing), running (it has seen other lines, as in
the middle of a corpus), and warm (it has seen the same lines).
"""

import copy
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from tidybert.errors import UsageError, param
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import UNK_TOKEN

STATES: Final = ("cold", "running", "warm")
"""The tokenizer has seen nothing, other lines, or the same lines before."""
_TIMED_SHARE: Final = 4


def bench_tokenization(
    model: str, lines: Sequence[str], *, repeats: int = 5, against: str | None = "transformers"
) -> dict[str, Any]:
    """Megabytes of UTF-8 a second, ids only: medians of ``repeats`` rounds that take turns.

    The last quarter of the lines is timed; a running tokenizer has seen the lines before it.
    ``against`` is None, or "transformers": the tokenizers library that its BertTokenizer runs on,
    on one thread, by encode_batch_fast, its fastest way.  ``lines_differing`` counts the lines
    whose ids are not the same on both sides.
    """
    if against not in (None, "transformers"):
        raise UsageError(f"{param('against', against)}: expected transformers, or nothing")
    tokenizer = BertTokenizer.from_pretrained(model)
    reference = _reference(tokenizer) if against else None
    seconds: dict[str, list[float]] = {name: [] for name in (*STATES, "reference")}
    differing = 0
    start = len(lines) - max(1, len(lines) // _TIMED_SHARE)
    earlier, lines = lines[:start], lines[start:]
    for _ in range(repeats):
        # A copy has an empty cache.
        encode = partial(copy.copy(tokenizer).encode_batch, lines, add_special_tokens=False)
        _timed(encode, seconds["cold"])
        ours = _timed(encode, seconds["warm"])
        running = copy.copy(tokenizer)
        running.encode_batch(earlier, add_special_tokens=False)
        _timed(partial(running.encode_batch, lines, add_special_tokens=False), seconds["running"])
        if reference:
            fast = partial(reference.encode_batch_fast, lines, add_special_tokens=False)
            theirs = _timed(fast, seconds["reference"])
            differing = sum(
                ids.tolist() != encoding.ids for ids, encoding in zip(ours, theirs, strict=True)
            )
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    speed = {name: megabytes / statistics.median(taken) for name, taken in seconds.items() if taken}
    result: dict[str, Any] = {
        "model": model,
        "lines": len(lines),
        "megabytes": megabytes,
        "repeats": repeats,
        "lines_seen_before": len(earlier),
        **{f"{state}_mb_per_second": speed[state] for state in STATES},
    }
    if reference:
        result |= {
            "against": f"tokenizers {version('tokenizers')}",
            "against_mb_per_second": speed["reference"],
            **{f"{state}_ratio": speed[state] / speed["reference"] for state in STATES},
            "lines_differing": differing,
        }
    return result


def _timed(call: Callable[[], Any], seconds: list[float]) -> Any:
    start = time.perf_counter()
    result = call()
    seconds.append(time.perf_counter() - start)
    return result


def _reference(tokenizer: BertTokenizer) -> Any:
    """Hugging Face's fast tokeniser with our vocabulary and settings, on one thread."""
    # The library reads both when it first works: the first turns its threads off, the second leaves
    # one to any part that would start them anyway.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    ids = {token: index for index, token in enumerate(tokenizer.vocabulary.tokens)}
    reference = Tokenizer(
        models.WordPiece(vocab=ids, unk_token=UNK_TOKEN, max_input_chars_per_word=100)
    )
    reference.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenizer.tokenize_chinese_chars,
        strip_accents=tokenizer.strip_accents,
        lowercase=tokenizer.do_lower_case,
    )
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return reference
