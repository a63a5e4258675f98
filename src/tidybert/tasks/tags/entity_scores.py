"""How sure a model is of an entity, and from which score on a type is given; loads no torch.

The score is the probability that type and characters are right.  It is the lattice's, whose
log-odds are stretched and moved to fit dev (Platt 1999).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import UsageError, param, suggestion
from tidybert.metrics.calibration import ANSWERS_NONE, PRIOR, fewest_right
from tidybert.tasks.task_options import TagOptions

Floats = npt.NDArray[np.float64]

_LEAST_WEIGHT: Final = 0.25
_NEW_NAMES: Final = 0.25
_HIGHEST: Final = 1 - 1e-9
_ITERATIONS: Final = 50
_GENTLEST: Final = 0.05


@dataclass(frozen=True)
class EntityScores:
    """What makes scores of probabilities in the lattice."""

    slope: float
    offset: float

    def of(self, probabilities: Floats) -> Floats:
        """(M,) the scores of entities with these probabilities in the lattice, (M,)."""
        return np.asarray(_sigmoid(self.slope * _log_odds(probabilities) + self.offset))

    @classmethod
    def fit(
        cls, probabilities: Floats, right: npt.NDArray[np.bool_], weights: Floats
    ) -> "EntityScores":
        """The scores with the lowest log-loss on (M,) entities, right or wrong, and their weights.

        As where a temperature is fitted, further examples count that are as right as the lattice
        says.
        """
        odds = _log_odds(probabilities)
        inputs = np.stack([odds, np.ones_like(odds)], axis=1)
        spread = probabilities * (1 - probabilities) + 1e-12
        prior = PRIOR * spread / max(spread.sum(), 1e-12)
        wanted, total = weights * right + prior * _sigmoid(odds), weights + prior
        found = np.array([1.0, 0.0])
        for _ in range(_ITERATIONS):
            given = _sigmoid(inputs @ found)
            curvature = (inputs * (total * given * (1 - given))[:, None]).T @ inputs
            slope = inputs.T @ (total * given - wanted)
            found = found - np.linalg.solve(curvature + 1e-9 * np.eye(2), slope)
        if not np.isfinite(found).all() or found[0] < _GENTLEST:
            return cls(1.0, 0.0)
        return cls(float(found[0]), float(found[1]))


def known_weights(is_known: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> Floats:
    """(M,) what each entity counts in the fit: those of the training data less than others.

    Fewer names of new texts are known than of dev, and a model is surer of those.  Where dev has no
    new names either, all count the same.
    """
    new = 1 - is_known[right].mean() if right.any() else 0.0
    weight = 1 - (1 - _LEAST_WEIGHT) * min(1.0, new / _NEW_NAMES)
    return np.where(is_known, weight, 1.0)


def _log_odds(probabilities: Floats) -> Floats:
    kept = np.minimum(probabilities, _HIGHEST)
    return np.asarray(np.log(kept) - np.log1p(-kept))


def _sigmoid(odds: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-odds)))


def asked_shares(options: TagOptions, types: Collection[str]) -> dict[str, tuple[str, float]]:
    """By type, the option that asks for a share of its entities, and the share.

    Raises UsageError for a type that the training data lack, or of which both options ask.
    """
    found: dict[str, tuple[str, float]] = {}
    for name, shares in options.shares().items():
        for type_name in [each for each in shares if each is not None and each not in types]:
            raise UsageError(
                f"{param(name, type_name)}: no entity of the training data has this type; it has "
                f"{', '.join(types)}{suggestion(str(type_name), types)}"
            )
        for type_name in types:
            share = shares.get(type_name, shares.get(None))
            if share is not None and type_name in found:
                raise UsageError(
                    f"{param('min_recall')} and {param('min_precision')} both choose a score for "
                    f"{type_name}: give one of them"
                )
            if share is not None:
                found[type_name] = (name, share)
    return found


def score_of_recall(found: Floats, num_true: int, share: float) -> float | None:
    """The highest score that finds this share of ``num_true`` entities; ``found``: those scored.

    It holds for new texts 19 times in 20.  None where even the lowest finds too few.
    """
    needed = fewest_right(num_true, share)
    ranked = np.sort(found)[::-1]
    return float(ranked[needed - 1]) if needed <= len(ranked) else None


def score_of_precision(scores: Floats, right: npt.NDArray[np.bool_], share: float) -> float:
    """The lowest score from which this share of (M,) entities is right, as ``score_of_recall``."""
    order = np.argsort(-scores, kind="stable")
    ranked, counts = scores[order], np.cumsum(right[order])
    # Equal scores come together; a share far from the wanted one needs no exact test.
    lasts = np.flatnonzero(np.diff(ranked, append=-1.0))
    for at in lasts[counts[lasts] >= share * (lasts + 1)][::-1].tolist():
        if counts[at] >= fewest_right(at + 1, share):
            return float(ranked[at])
    return ANSWERS_NONE


def not_overlapping(places: Sequence[tuple[int, int]], scores: Sequence[float]) -> list[int]:
    """The numbers of places, the best score first, that no better one overlaps; in text order."""
    taken: set[int] = set()
    kept = []
    for number in sorted(range(len(places)), key=lambda each: (-scores[each], each)):
        words = range(*places[number])
        if taken.isdisjoint(words):
            taken.update(words)
            kept.append(number)
    return sorted(kept, key=lambda each: places[each])
