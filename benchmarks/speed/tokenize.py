"""Time text to ids on one thread, on English Wikipedia.

A cold tokenizer has seen nothing, a running one has seen other lines (as in the middle of a
corpus), and a warm one the same lines.  The other side is the tokenizers library, which
transformers' tokenizer runs on, by its fastest way.
"""

import argparse
import copy
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.harness import datasets, script
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import UNK_TOKEN

STATES: Final = ("cold", "running", "warm")
_TIMED_SHARE: Final = 4


def bench_tokenization(
    model: str, lines: Sequence[str], *, rounds: int, against: str | None
) -> dict[str, Any]:
    """Megabytes of UTF-8 a second, ids only; the last quarter of the lines is timed."""
    tokenizer = BertTokenizer.from_pretrained(model)
    sides = ("ours", *(["tokenizers"] if against else []))
    reference: Any = _reference(tokenizer) if against else None
    start = len(lines) - max(1, len(lines) // _TIMED_SHARE)
    earlier, lines = lines[:start], lines[start:]
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    ids: dict[str, Any] = {}

    def rate(side: str, encode: Callable[..., Any]) -> float:
        ids[side], seconds, _ = script.timed(partial(encode, lines, add_special_tokens=False))
        return megabytes / seconds

    def measure(side: str) -> dict[str, float]:
        if side != "ours":
            return dict.fromkeys(STATES, rate(side, reference.encode_batch_fast))
        # A copy has an empty cache.
        cold, running = copy.copy(tokenizer), copy.copy(tokenizer)
        rates = {state: rate(side, cold.encode_batch) for state in ("cold", "warm")}
        running.encode_batch(earlier, add_special_tokens=False)
        return {**rates, "running": rate(side, running.encode_batch)}

    found = script.take_rounds(sides, rounds, measure)
    pairs = zip(ids["ours"], ids["tokenizers"], strict=True) if against else ()
    return {
        **found, "threads": 1, "lines": len(lines), "lines_seen_before": len(earlier),
        "megabytes": megabytes,
        "lines_differing": sum(mine.tolist() != other.ids for mine, other in pairs),
    }  # fmt: skip


def _reference(tokenizer: BertTokenizer) -> Any:
    """Hugging Face's fast tokenizer with our vocabulary and settings, on one thread."""
    # The library reads both when it first works: the first turns its threads off, the second leaves
    # one to any part that would start them anyway.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    ids = {token: index for index, token in enumerate(tokenizer.vocabulary.tokens)}
    pieces = models.WordPiece(vocab=ids, unk_token=UNK_TOKEN, max_input_chars_per_word=100)
    reference = Tokenizer(pieces)
    reference.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenizer.tokenize_chinese_chars,
        strip_accents=tokenizer.strip_accents,
        lowercase=tokenizer.do_lower_case,
    )
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return reference


def main(parser: argparse.ArgumentParser) -> None:
    script.add_against(parser)
    given = script.parse(parser, "model rounds json", rounds=5)
    source, lines = datasets.wikipedia_lines()
    result = bench_tokenization(given.model, lines, rounds=given.rounds, against=given.against)
    title = f"Tokenising {result['lines']:,} lines, {result['megabytes']:.1f} MB: {source}"
    remarks = [f"lines whose ids differ: {result['lines_differing']:,}"] if given.against else []
    rows = {f"MB/s, {state}": state for state in STATES}
    script.print_speed(given, title, result, rows, remarks)
