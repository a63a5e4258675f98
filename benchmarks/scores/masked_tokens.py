"""How many tokens of held-out text a model names, masked one at a time.

    python -m benchmarks masked_tokens CORPUS --models tidybert-small --write docs/own-model.md

The text is the held-out part of a corpus, in sequences of at most 128 of its tokens, from documents
drawn by their length.  Of each sequence 15% of the tokens are drawn, and each is masked alone: the
model sees all others, as in a user's text.  Pre-training's own figure masks them all at once, and
its recipe more of them.  Models with different vocabularies name different tokens, so such rows
compare roughly.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.rounds import at_least, script_parser
from benchmarks.harness.tables import markdown, show
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import WeightsError
from tidybert.modeling import BertForPreTraining, Rows

SHARE: Final = 0.15
MOST_TOKENS: Final = 128
_BATCH: Final = 64

Ids = npt.NDArray[np.int64]


def texts(corpus: TokenCorpus, count: int, seed: int = 0) -> list[str]:
    """Texts of the corpus, each of at most 126 of its tokens."""
    numbers, tokenizer = np.random.default_rng(seed), corpus.tokenizer()
    ends = corpus.document_ends(np.arange(corpus.num_documents))
    starts = numbers.integers(ends[-1], size=count)
    last = np.minimum(starts + MOST_TOKENS - 2, ends[np.searchsorted(ends, starts, "right")])
    return [tokenizer.decode(ids.tolist()) for ids in corpus.tokens(starts, last)]


def masked(ids: Ids, mask: int, numbers: np.random.Generator) -> tuple[Ids, Ids]:
    """The (N,) places drawn, without the ends, and the sequence with each one masked (N, T)."""
    count = max(1, round(SHARE * (len(ids) - 2)))
    places = 1 + numbers.choice(len(ids) - 2, size=count, replace=False)
    rows = np.repeat(ids[None], count, 0)
    rows[np.arange(count), places] = mask
    return places, rows


def named(model: ModelDirectory, given: list[str]) -> Iterator[bool]:
    """Of each token drawn from the texts, whether the likeliest one is right.

    Raises WeightsError if the model lacks a head of pre-training.
    """
    network, report = model.build(BertForPreTraining)
    if report.new:
        raise WeightsError(f"{model} lacks {', '.join(report.new)}: name a pre-trained MODEL")
    network.eval()
    tokenizer, numbers = model.tokenizer, np.random.default_rng(0)
    for text in given:
        ids = np.array(tokenizer.encode(text, max_seq_length=MOST_TOKENS).input_ids)
        if len(ids) == 2:
            continue
        places, rows = masked(ids, tokenizer.mask_token_id, numbers)
        for at in range(0, len(rows), _BATCH):
            some, part = places[at : at + _BATCH], rows[at : at + _BATCH]
            wanted = torch.from_numpy(some + len(ids) * np.arange(len(part)))
            with torch.inference_mode():
                found = network(Rows.from_lists(part.tolist()), masked_lm_positions=wanted)
            yield from (found.prediction_logits.argmax(-1).numpy() == ids[some]).tolist()


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="what build-corpus wrote")
    parser.add_argument("--models", nargs="+", default=["tidybert-small"])
    parser.add_argument("--num-texts", type=at_least(1), default=400)
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    given = parser.parse_args()
    read = texts(TokenCorpus(given.corpus, "held-out"), given.num_texts)
    rows = []
    for name in given.models:
        found = list(named(ModelDirectory.open(name), read))
        rows.append([Path(name).name, f"{len(found):,}", f"{100 * np.mean(found):.1f}"])
    show(markdown(["model", "tokens", "right, percent"], rows), given.write, "masked_tokens")


if __name__ == "__main__":
    main()
