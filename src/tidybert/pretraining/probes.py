"""Probes of a run: how well a linear layer on the encoder's frozen states tells labels apart.

Each text is the mean of its tokens' last hidden states.  Five probes are fitted, each without a
fifth of the texts, and answer these; so every text counts, and none is answered by a probe that
has seen it.  The texts, the folds and the fit follow from the file alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from tidybert.data.batching import collate, cut_by_tokens
from tidybert.data.features import Features
from tidybert.errors import DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.modeling.architectures import encoder_of
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.tasks.classification import Classification
from tidybert.tasks.labelled_examples import read_all
from tidybert.training.linear_probe import fit_probe
from tidybert.training.precision import autocast, is_mixed

MOST_TEXTS: Final = 1000
_FOLDS: Final = 5
_TOKENS_AT_ONCE: Final = 4096


@dataclass(frozen=True)
class Probe:
    """Labelled texts that a run is probed with; ``name`` is that of its score, probe_NAME."""

    name: str
    features: Sequence[Features]
    num_labels: int
    precision: str

    def score(self, model: nn.Module) -> float:
        """The accuracy on all texts of probes that were fitted without them."""
        states = self._states(model)
        fold_of = np.random.default_rng(0).permutation(len(states)) % _FOLDS
        correct = 0
        for fold in range(_FOLDS):
            fitted = np.flatnonzero(fold_of != fold).tolist()
            probe = fit_probe(
                [states[place] for place in fitted],
                [self.features[place] for place in fitted],
                self.num_labels,
                lambda outputs, batch: nn.functional.cross_entropy(
                    outputs, torch.tensor([one.label for one in batch.features]), reduction="sum"
                ),
            )
            for place in np.flatnonzero(fold_of == fold).tolist():
                correct += int(probe.outputs(states[place]).argmax()) == self.features[place].label
        return correct / len(states)

    def _states(self, model: nn.Module) -> list[Any]:
        """(1, H) of each text, float32: the mean of its tokens' last hidden states.

        A sharded model must have run as a whole before: it still has its embeddings then.
        """
        lengths = np.array([len(one.input_ids) for one in self.features])
        order = np.argsort(lengths, kind="stable")
        device = next(model.parameters()).device
        encoder = encoder_of(model)
        found: list[Any] = [None] * len(order)
        with torch.no_grad(), autocast(device, is_mixed(self.precision, device)):
            for part in cut_by_tokens(lengths[order], _TOKENS_AT_ONCE):
                chosen = order[part]
                rows = collate([self.features[place] for place in chosen]).to(device).rows
                states = encoder(rows).last_hidden_state.float()
                bounds = pairwise(rows.cu_seqlens.tolist())
                for place, (begin, end) in zip(chosen, bounds, strict=True):
                    found[place] = states[begin:end].mean(0, keepdim=True).cpu().numpy()
        return found


def read_probes(files: Sequence[str] | None, plan: PretrainingPlan) -> list[Probe]:
    found = [_read(path, plan) for path in files or ()]
    names = [each.name for each in found]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UsageError(f"{param('probe')}: two files are named {name}; rename one of them")
    return found


def _read(path: str, plan: PretrainingPlan) -> Probe:
    try:
        examples = read_all(Classification, path, name="probe")
    except (DataError, UsageError) as error:
        raise DataError(
            f"{param('probe', path)}: {error.message}\na probe's file has a column text and a "
            "column label"
        ) from error
    chosen = np.random.default_rng(0).permutation(len(examples))[:MOST_TEXTS]
    texts = [examples[place] for place in np.sort(chosen)]
    labels = {one.label for one in texts}
    if len(labels) < 2 or len(texts) < 2 * _FOLDS:
        raise DataError(
            f"{param('probe', path)} has {count_of(len(texts), 'text')} and "
            f"{count_of(len(labels), 'label')}; a probe "
            f"needs {2 * _FOLDS} texts and 2 labels"
        )
    task = Classification.from_examples(texts)
    features = task.features(texts, plan.tokenizer(), plan.longest)
    task.add_labels(features, texts)
    counts = Counter(one.label for one in features)
    plan.reporter.tell(
        f"probe {Path(path).stem}: {len(texts):,} of {len(examples):,} texts, {len(labels)} "
        f"labels; the commonest one is right for {max(counts.values()) / len(features):.1%}"
    )
    return Probe(Path(path).stem, features, len(labels), plan.arguments.precision)
