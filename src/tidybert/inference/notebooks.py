"""How an object that answers shows itself: one line, or a table in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import torch

from tidybert.catalog import find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.system.terminal_text import printable


class ShowsFacts(ABC):
    """An object that Python shows by its ``facts`` on one line, and a notebook as a table."""

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """The model, the data that trained it and its metrics, by name."""

    def __repr__(self) -> str:
        return one_line(self, self.facts())

    def _repr_html_(self) -> str:
        return html_table(self, self.facts())


class ShowsPretraining(ShowsFacts):
    """The same for a model with the head of its pre-training."""

    device: torch.device
    precision: str
    max_seq_length: int

    def _note(self, model: str | Path, config: Any) -> None:
        """Keep the name of the MODEL, its size and the metrics of its RUN, for ``facts``."""
        self._name, self._config = str(model), config
        metadata = ModelMetadata.read(find_model(model))
        self._metrics = {} if metadata is None else metadata.metrics

    def facts(self) -> dict[str, object]:
        return {
            "model": self._name,
            "layers": self._config.num_hidden_layers,
            "hidden_size": self._config.hidden_size,
            "max_seq_length": self.max_seq_length,
            "device": str(self.device),
            "precision": self.precision,
            **{k: round(v, 4) for k, v in self._metrics.items() if isinstance(v, float)},
        }


def one_line(shown: object, facts: Mapping[str, object]) -> str:
    """Predictor(run='tickets', task='classify', …), without control characters."""
    parts = ", ".join(f"{name}={value!r}" for name, value in facts.items())
    return printable(f"{type(shown).__name__}({parts})")


def html_table(shown: object, facts: Mapping[str, object]) -> str:
    """A table of two columns, with every text escaped."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(printable(str(value)))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{type(shown).__name__}</caption>{rows}</table>"
