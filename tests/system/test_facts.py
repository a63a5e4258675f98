"""How objects that answer show themselves: their model, their training, their metrics."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tidybert
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.modeling import BertForPreTraining
from tidybert.system.terminal import ShowsFacts, one_line


def test_models_with_pre_training_heads(
    pretrained: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    foreign, _ = pretrained("BertForPreTraining")
    directory = ModelDirectory.open(foreign)
    model, _ = directory.build(BertForPreTraining)
    save_model_directory(
        tmp_path / "run",
        model_state=model.state_dict(),
        config=directory.config,
        tokenizer=directory.tokenizer,
        metadata=ModelMetadata("pretrain", metrics={"mlm_accuracy": 0.25}),
        architecture="BertForPreTraining",
    )

    for kind in (tidybert.MaskFiller, tidybert.NextSentencePredictor, tidybert.TextScorer):
        from_run = kind(tmp_path / "run")
        shown = repr(from_run)
        assert shown.startswith(f"{kind.__name__}(model='{tmp_path / 'run'}', layers=")
        assert shown.endswith("device='cpu', precision='float32', mlm_accuracy=0.25)")
        assert "<th>mlm_accuracy</th><td>0.25</td>" in from_run._repr_html_()
        assert "accuracy" not in repr(kind(foreign))


def test_names_are_escaped() -> None:
    class Odd(ShowsFacts):
        def facts(self) -> dict[str, object]:
            return {"run": "<b>\x1b[2J"}

    assert "<td>&lt;b&gt;" in Odd()._repr_html_()
    for shown in (repr(Odd()), Odd()._repr_html_(), one_line(Odd(), {"run": "\x1b"})):
        assert "\x1b" not in shown


def test_every_public_class_shows_itself() -> None:
    for name in tidybert.__all__:
        found = getattr(tidybert, name)
        if isinstance(found, type):
            assert found.__repr__ is not object.__repr__, name
