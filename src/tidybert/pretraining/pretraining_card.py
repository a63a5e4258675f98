"""The model card of a pre-trained RUN: its corpus, what held-out text shows, and its use."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidybert.checkpoints.model_card import table, write_card
from tidybert.configuration import LANGUAGE_MODELS, BertConfig
from tidybert.pretraining.pretraining_job import is_new
from tidybert.storage.model_files import RECORD
from tidybert.training.reports import TrainingResult


def write_pretraining_card(
    run: Path, arguments: Mapping[str, Any], result: TrainingResult, config: BertConfig
) -> bool:
    """Write README.md, unless the RUN has one of the user's; returns whether it did.

    ``arguments`` is the content of arguments.json.
    """
    model = str(arguments["model"])
    is_drawn = is_new(model) or model in LANGUAGE_MODELS
    start = f"a `{model}` with random weights" if is_drawn else f"the weights of `{model}`"
    metrics = [
        (name, f"{each:.4f}") for name, each in result.metrics.items() if isinstance(each, float)
    ]
    left_out = (RECORD, "task", "model", "data")
    settings = [
        (name, value)
        for name, value in arguments.items()
        if name not in left_out and value not in (None, False)
    ]
    record = arguments[RECORD]
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    card = _language_model(run) if arguments["task"] == "train-lm" else _bert(run)
    data = arguments["data"]
    corpora = " and ".join(f"`{each}`" for each in ([data] if isinstance(data, str) else data))
    summary = (
        f"A {card.kind} of {config.num_hidden_layers} layers and width {config.hidden_size} "
        f"({config.num_parameters:,} parameters) that tidybert {card.trained}, from {start}, on "
        f"the corpus {corpora}: {result.num_tokens:,} tokens, {result.num_steps:,} "
        "steps."
    )
    measured = "Training" if record["measured_on"] == "train" else "Held-out"
    machine = (
        f"{record['seconds']:,.0f} s on {record['processes']} x "
        f"{record.get('device_name', record['processor'])} ({record['device']}), with {versions}."
    )
    paragraphs = [
        f"# {run.name}",
        summary,
        f"## {measured} text",
        table(("metric", "value"), metrics),
        f"The {measured.lower()} text also chose the best weights.",
        "## Use",
        card.use,
        "## Limits",
        card.limits,
        "## Settings",
        table(("setting", "value"), settings),
        machine,
    ]
    return write_card(run, card.metadata, paragraphs)


@dataclass(frozen=True)
class _Kind:
    """What differs between the cards of an encoder and of a language model."""

    kind: str
    trained: str
    use: str
    limits: str
    metadata: dict[str, Any]


def _bert(run: Path) -> _Kind:
    return _Kind(
        kind="BERT",
        trained="pre-trained",
        use=(
            f"```sh\ntidybert finetune classify {run.name} --train FILE --out NEW\n```\n\n"
            "```python\nfrom transformers import AutoModel, AutoTokenizer\n\n"
            f'tokenizer = AutoTokenizer.from_pretrained("{run.name}")\n'
            f'model = AutoModel.from_pretrained("{run.name}")\n```'
        ),
        limits=(
            "It fills masks; any other task needs fine-tuning. tidybert does not know the "
            "languages of the corpus or the licence of the weights."
        ),
        metadata={
            "library_name": "transformers",
            "pipeline_tag": "fill-mask",
            "tags": ["tidybert", "bert"],
        },
    )


def _language_model(run: Path) -> _Kind:
    return _Kind(
        kind="language model, left to right,",
        trained="trained",
        use=f'```sh\ntidybert generate {run.name} "A beginning"\n```',
        limits=(
            "It continues a text. It cannot be fine-tuned, and transformers does not open it. "
            "tidybert does not know the languages of the corpus or the licence of the weights."
        ),
        metadata={
            "library_name": "tidybert",
            "pipeline_tag": "text-generation",
            "tags": ["tidybert"],
        },
    )
