"""The model card of a pre-trained RUN: its corpus, what held-out text shows, and its use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidybert.checkpoints.model_card import write_card
from tidybert.configuration import LANGUAGE_MODELS, BertConfig
from tidybert.pretraining.pretraining_job import is_new
from tidybert.storage.model_files import RECORD
from tidybert.training.reports import TrainingResult


def write_pretraining_card(
    run: Path, arguments: Mapping[str, Any], result: TrainingResult, config: BertConfig
) -> bool:
    """Write README.md from arguments.json's content, unless the user wrote it; whether it did."""
    model, data = str(arguments["model"]), arguments["data"]
    is_causal = arguments["task"] == "train-lm"
    return write_card(
        run,
        "pretraining.md.j2",
        name=run.name,
        arguments=arguments,
        record=arguments[RECORD],
        left_out=(RECORD, "task", "model", "data"),
        result=result,
        config=config,
        is_causal=is_causal,
        is_drawn=is_new(model) or model in LANGUAGE_MODELS,
        corpora=[data] if isinstance(data, str) else data,
        tag="text-generation" if is_causal else "fill-mask",
        tags=["tidybert"] if is_causal else ["tidybert", "bert"],
        library="tidybert" if is_causal else "transformers",
    )
