"""transformers' side of a pre-training: its model, masking collator and Trainer, padded."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers

from tidybert.timing.pretraining_work import PretrainingWork, config_of
from tidybert.timing.transformers_trainer import train_in_order


def run_transformers(
    work: PretrainingWork, instances: Any, batches: Sequence[Any]
) -> dict[str, Any]:
    """Train on each step's instances; returns {"seconds", "step_seconds", "losses"}."""
    transformers.utils.logging.set_verbosity_error()
    transformers.set_seed(work.seed)
    corpus = instances.corpus
    tokenizer = transformers.AutoTokenizer.from_pretrained(corpus.directory)
    # Its default: on CUDA the memory-efficient kernel, as PyTorch's flash attention takes no mask.
    settings = {
        **config_of(work, corpus).to_dict(),
        "attn_implementation": "sdpa",
        "hidden_dropout_prob": work.dropout,
        "attention_probs_dropout_prob": work.dropout,
    }
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings))
    dataset: list[dict[str, Any]] = []
    numbers: list[list[int]] = []
    for places in batches:
        numbers.append(list(range(len(dataset), len(dataset) + len(places))))
        dataset += _pairs(corpus, places, tokenizer.cls_token_id, tokenizer.sep_token_id)
    masker = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    def collate(chosen: list[dict[str, Any]]) -> dict[str, Any]:
        fields = ("input_ids", "token_type_ids")
        padded = tokenizer.pad(
            [{name: one[name] for name in fields} for one in chosen],
            padding="max_length",
            max_length=work.max_seq_length,
        )
        rows = [{name: padded[name][row] for name in padded} for row in range(len(chosen))]
        masked: dict[str, Any] = masker(rows)
        masked["next_sentence_label"] = torch.tensor([one["next_sentence_label"] for one in chosen])
        return masked

    losses: list[float] = []
    trained = train_in_order(
        model,
        dataset,
        numbers,
        collate,
        precision=work.precision,
        device=torch.device(work.device),
        losses=losses,
        learning_rate=work.learning_rate,
        warmup_steps=min(work.warmup_steps, work.steps // 10),
        seed=work.seed,
        torch_compile=work.compile,
        remove_unused_columns=False,
    )
    return {**trained, "losses": losses}


def _pairs(corpus: Any, places: Any, cls: int, sep: int) -> list[dict[str, Any]]:
    """The instances at these places as transformers' data set holds them."""
    firsts = corpus.tokens(places.begin_a, places.end_a)
    seconds = corpus.tokens(places.begin_b, places.end_b)
    return [
        {
            "input_ids": np.concatenate(([cls], first, [sep], second, [sep])).tolist(),
            "token_type_ids": [0] * (len(first) + 2) + [1] * (len(second) + 1),
            "next_sentence_label": int(label),
        }
        for first, second, label in zip(firsts, seconds, places.label, strict=True)
    ]
