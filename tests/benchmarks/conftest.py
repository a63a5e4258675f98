"""The scripts of benchmarks/, which are no package, run in this process on tiny models."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.modeling import BertForPreTraining
from tidybert.tokenization import BertTokenizer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script by its name, as ``python benchmarks/NAME.py`` would find it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def run_script(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Runs a script's ``main`` with arguments."""

    def run(name: str, *arguments: str | Path) -> None:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        script(name).main()

    return run


@pytest.fixture(scope="session")
def pretrained_run(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    tiny_config: Callable[..., BertConfig],
) -> Path:
    """What ``tidybert pretrain`` writes, but for checkpoints; every parameter random."""
    run = tmp_path_factory.mktemp("runs") / "pretrained"
    torch.manual_seed(0)
    config = tiny_config(intermediate_size=64, max_position_embeddings=128)
    model = BertForPreTraining(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    metrics = {"mlm_accuracy": 0.25, "nsp_accuracy": 0.75, "perplexity": 12.5}
    save_model_directory(
        run,
        model_state=model.state_dict(),
        config=config,
        tokenizer=BertTokenizer.from_pretrained(tiny_model),
        metadata=ModelMetadata(task="pretrain", metrics=metrics),
        architecture="BertForPreTraining",
    )
    arguments = {
        "objective": "mlm+nsp",
        "recipe": "fast",
        "optimizer": "muon",
        "learning_rate": 0.002,
        "masked_lm_prob": 0.15,
        "tokens_per_step": 2048,
    }
    (run / "arguments.json").write_text(json.dumps(arguments))
    figures = {"mlm_loss": 3.0, "nsp_loss": 0.5, "learning_rate": 0.001}
    lines: list[dict[str, float]] = [
        {"step": 10, "num_tokens": 20000, **figures},
        {"step": 12, "num_tokens": 24000, **figures},
        {"step": 12, "eval_loss": 1.0, "eval_mlm_loss": 0.5, "eval_nsp_loss": 0.5},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.fixture
def page(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a page with marks."""

    def make(mark: str) -> Path:
        path = tmp_path / "page.md"
        path.write_text(f"before\n<!-- {mark} -->\nold\n<!-- /{mark} -->\nafter\n")
        return path

    return make
