"""Fine-tune each of BERT's relatives beside transformers: the same losses, and steps a second.

Both sides begin with the same random weights, at MiniLM's size, and take the same batches of SST-2
without dropout; the other side pads.  The ids are those of minilm's tokenizer on both sides: no
relative's own vocabulary is at hand.  Seconds are the median of the steps, taken in turn.
"""

import argparse
import json
import time
from statistics import median
from typing import Any, Final

import torch
import transformers
from torch import Tensor
from torch.nn import functional

from benchmarks.harness import datasets
from tidybert.checkpoints.weights import from_huggingface
from tidybert.configuration import BertConfig
from tidybert.modeling import BertForSequenceClassification, Rows
from tidybert.tokenization import BertTokenizer

_SIZES: Final = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
KINDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "bert": ("Bert", _SIZES),
    "roberta": ("Roberta", {**_SIZES, "max_position_embeddings": 514, "type_vocab_size": 1}),
    "distilbert": (
        "DistilBert",
        {"vocab_size": 30522, "dim": 384, "n_layers": 6, "n_heads": 12, "hidden_dim": 1536},
    ),
    "electra": ("Electra", {**_SIZES, "embedding_size": 128}),
    "modernbert": ("ModernBert", {**_SIZES, "intermediate_size": 1024, "pad_token_id": 0}),
}


def without_dropout(config: Any) -> Any:
    for name, value in config.to_dict().items():
        if "dropout" in name and value is not None:
            setattr(config, name, 0.0)
    return config


def bench_relative(kind: str, texts: list[list[int]], labels: list[int], num_steps: int) -> Any:
    """The largest difference of a loss, the last losses, and seconds of a step and of a pass."""
    prefix, sizes = KINDS[kind]
    torch.manual_seed(0)
    config = without_dropout(getattr(transformers, f"{prefix}Config")(**sizes, num_labels=2))
    theirs = getattr(transformers, f"{prefix}ForSequenceClassification")(config)
    given = {**config.to_dict(), "vocab_size": 30522}
    ours = BertForSequenceClassification(BertConfig.from_dict(given), 2)
    name = "BertForSequenceClassification"
    ours.load_state_dict(from_huggingface(theirs.state_dict(), ours.config, name).tensors)
    pad = config.pad_token_id
    sides = {"tidybert": ours.train(), "transformers": theirs.train()}
    optimizers = {
        side: torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)
        for side, model in sides.items()
    }

    def logits(side: str, batch: list[list[int]]) -> Tensor:
        if side == "tidybert":
            return ours(Rows.from_lists(batch))  # type: ignore[no-any-return]
        longest = max(map(len, batch))
        ids = torch.tensor([each + [pad] * (longest - len(each)) for each in batch])
        mask = torch.tensor([[1] * len(each) + [0] * (longest - len(each)) for each in batch])
        return theirs(input_ids=ids, attention_mask=mask).logits  # type: ignore[no-any-return]

    losses: dict[str, list[float]] = {side: [] for side in sides}
    seconds: dict[str, list[float]] = {side: [] for side in (*sides, "answer", "their answer")}
    for step in range(num_steps):
        chosen = slice(32 * step, 32 * step + 32)
        for side in sides:
            begin = time.perf_counter()
            loss = functional.cross_entropy(
                logits(side, texts[chosen]), torch.tensor(labels[chosen])
            )
            loss.backward()  # type: ignore[no-untyped-call]
            optimizers[side].step()
            optimizers[side].zero_grad()
            losses[side].append(loss.item())
            seconds[side].append(time.perf_counter() - begin)
    with torch.inference_mode():
        for step in range(min(10, num_steps)):
            for side, key in (("tidybert", "answer"), ("transformers", "their answer")):
                sides[side].eval()
                begin = time.perf_counter()
                logits(side, texts[32 * step : 32 * step + 32])
                seconds[key].append(time.perf_counter() - begin)
    pairs = zip(*losses.values(), strict=True)
    times = {side: round(median(each[len(each) // 4 :]), 4) for side, each in seconds.items()}
    return {
        "kind": kind,
        "steps": num_steps,
        "largest_difference": max(abs(one - other) for one, other in pairs),
        "last_losses": [each[-1] for each in losses.values()],
        "seconds": times,
        "training_ratio": round(times["transformers"] / times["tidybert"], 3),
        "answer_ratio": round(times["their answer"] / times["answer"], 3),
    }


def relatives(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    path = datasets.data_folder() / "glue/SST-2/train.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()[1 : 32 * given.steps + 1]
    cells = [line.split("\t") for line in lines]
    ids = BertTokenizer.from_pretrained("minilm").encode_batch([text for text, _ in cells])
    texts = [each[:64].tolist() for each in ids]
    for kind in given.kinds:
        found = bench_relative(kind, texts, [int(label) for _, label in cells], given.steps)
        print(json.dumps(found))
