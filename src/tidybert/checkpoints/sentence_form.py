"""What sentence-transformers does with an encoder's states: pool, Dense layers, scale, cut.

``sentence_reading`` finds it in a directory, ``write_sentence_form`` writes it into one.  Source:
the classes of sentence_transformers' modules.  B sequences, d numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from tidybert.checkpoints.activations import IDENTITY, SIGMOID
from tidybert.configuration import Pooling
from tidybert.errors import ConfigError, UsageError, param, suggestion
from tidybert.storage.atomic_files import atomic_write_json
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import (
    CONFIG_FILE,
    MODULES_FILE,
    PROMPTS_FILE,
    SENTENCE_FILE,
    TOKENIZER_CONFIG_FILE,
)
from tidybert.storage.opening import present
from tidybert.storage.own_files import make_directory

if TYPE_CHECKING:
    from torch import Tensor

    from tidybert.checkpoints.dense import Dense

POOLINGS: Final = get_args(Pooling)

#: Their booleans by pooling_mode; a file says true for one of them.
POOLING_KEYS: Final = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}

# What CrossEncoder applies to logits, in a config.json: from its version 4 on, and before.
_SCORES_KEY: Final = "sentence_transformers"
_OLD_SCORES_KEY: Final = "sbert_ce_default_activation_function"


def described_activation(activation: str) -> dict[str, Any]:
    """The keys of a config.json with which every version of CrossEncoder applies it to logits."""
    return {_SCORES_KEY: {"activation_fn": activation}, _OLD_SCORES_KEY: activation}


def longest_text(directory: Path) -> int | None:
    """The tokens that transformers cuts a text to, if the tokenizer's files say it."""
    path = directory / TOKENIZER_CONFIG_FILE
    values = read_json_object(path) if present(path, error=ConfigError) else {}
    length = values.get("model_max_length")
    return length if type(length) is int and length > 0 else None


def read_activation(directory: Path, config: Mapping[str, Any], num_labels: int) -> str | None:
    """The activation that CrossEncoder applies to logits; None for a model of another kind.

    ``config`` is the content of config.json.  From version 5.4 on, PROMPTS_FILE has what was there.
    Raises ConfigError for values of other types, and for a prompt.
    """
    path = directory / PROMPTS_FILE
    beside = read_json_object(path) if present(path, error=ConfigError) else {}
    if beside.get("model_type") == "CrossEncoder":
        found = beside
    elif _SCORES_KEY in config or _OLD_SCORES_KEY in config:
        found, path = config.get(_SCORES_KEY) or {}, directory / CONFIG_FILE
    else:
        return None
    if not isinstance(found, Mapping) or found.get("default_prompt_name") is not None:
        raise ConfigError(
            f"{path}: {_SCORES_KEY} is {found!r:.80}; a JSON object without a default prompt is "
            "expected"
        )
    named = found.get("activation_fn") or config.get(_OLD_SCORES_KEY)
    return str(named or (SIGMOID if num_labels == 1 else IDENTITY))


@dataclass(frozen=True)
class SentenceForm:
    """From the states of tokens to one vector a text.

    Args:
        pooling: mean, cls or max.
        dense: what follows the pooling.
        normalize: whether the vector is then scaled to length 1.
        prompts: by name, what is put before a text.
        default_prompt_name: the prompt of a text for which none is named.
        max_seq_length: longest text in tokens; None for all the model's positions.
        truncate_dim: how many numbers of a vector are kept, the first ones; None for all.
        graph_width: the numbers of a vector after the Dense modules that a graph computes.
    """

    pooling: str = "mean"
    dense: tuple[Dense, ...] = ()
    normalize: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    max_seq_length: int | None = None
    truncate_dim: int | None = None
    graph_width: int | None = None

    def prompt(self, given: str | None = None, name: str | None = None) -> str:
        """What is put before a text: ``given``, the prompt called ``name``, or the default one."""
        if given is not None and name is not None:
            raise UsageError(f"{param('prompt')} and {param('prompt_name')}: give one of the two")
        name = self.default_prompt_name if name is None else name
        if given is not None or name is None:
            return given or ""
        if name not in self.prompts:
            known = f"it has {', '.join(self.prompts)}" if self.prompts else "it has none"
            raise UsageError(
                f"{param('prompt_name', name)}: the model has no prompt of this name"
                f"{suggestion(name, self.prompts)}; {known}"
            )
        return self.prompts[name]

    @property
    def query_prompt_name(self) -> str | None:
        """The prompt of a text to search with, as in encode_query; None: the default, or none."""
        return self._first_prompt("query")

    @property
    def document_prompt_name(self) -> str | None:
        """The prompt of a text to be found, as in encode_document; None: the default, or none."""
        return self._first_prompt("document", "passage", "corpus")

    def _first_prompt(self, *names: str) -> str | None:
        return next((name for name in names if name in self.prompts), None)

    def dimension(self, width: int) -> int:
        """The numbers of a vector before the cut, from those of the pooled states."""
        return self.graph_width or (self.dense[-1].out_features if self.dense else width)


DENSE: Final = "dense"
"""Begins the names of the weights of Dense modules after an encoder that is trained with them."""


def dense_weights(form: SentenceForm) -> dict[str, Tensor]:
    """The weights of a form's Dense modules by their names in a network."""
    from torch import nn

    return nn.Sequential(*form.dense).state_dict(prefix=f"{DENSE}.")


def with_weights(
    form: SentenceForm, weights: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], SentenceForm]:
    """The weights of a network without those of its Dense modules, and the form that has these."""
    from tidybert.checkpoints.dense import Dense

    dense = tuple(
        Dense(
            weights[f"{DENSE}.{number}.linear.weight"],
            weights.get(f"{DENSE}.{number}.linear.bias"),
            each.activation_name,
        )
        for number, each in enumerate(form.dense)
    )
    rest = {name: each for name, each in weights.items() if not name.startswith(f"{DENSE}.")}
    return rest, replace(form, dense=dense)


# Write the files of sentence-transformers, in the form that every version reads.
#
# text-embeddings-inference and vLLM look for the same names: modules.json with
# sentence_transformers.models.Pooling, and 1_Pooling/config.json with a boolean for each mode.

_PACKAGE: Final = "sentence_transformers.models."


def write_sentence_form(
    directory: Path, form: SentenceForm, width: int, *, scores: str | None = None
) -> None:
    """Write modules.json and what it names into a MODEL directory that is being written.

    ``width`` is the encoder's hidden_size.  ``scores``: the last Dense gives the logits of a
    CrossEncoder, and this activation follows.
    """
    steps = ["Pooling", *("Dense" for _ in form.dense), *(["Normalize"] if form.normalize else [])]
    folders = ["", *(f"{number}_{step}" for number, step in enumerate(steps, start=1))]
    modules = [
        {"idx": number, "name": str(number), "path": folder, "type": f"{_PACKAGE}{step}"}
        for number, (folder, step) in enumerate(zip(folders, ["Transformer", *steps], strict=True))
    ]
    atomic_write_json(directory / MODULES_FILE, modules)
    atomic_write_json(
        directory / SENTENCE_FILE,
        {"max_seq_length": form.max_seq_length, "do_lower_case": False},
    )
    settings = {
        "prompts": form.prompts,
        "default_prompt_name": form.default_prompt_name,
        "similarity_fn_name": "cosine",
        "truncate_dim": form.truncate_dim,
        **({} if scores is None else {"model_type": "CrossEncoder", "activation_fn": scores}),
    }
    atomic_write_json(directory / PROMPTS_FILE, settings)
    modes = {key: mode == form.pooling for mode, key in POOLING_KEYS.items()}
    for folder in folders[1:]:
        make_directory(directory / folder)
    pooling = {"word_embedding_dimension": width, **modes, "include_prompt": True}
    atomic_write_json(directory / folders[1] / CONFIG_FILE, pooling)
    for folder, dense in zip(folders[2:], form.dense, strict=False):
        is_last = scores is not None and dense is form.dense[-1]
        values = {
            "in_features": dense.in_features,
            "out_features": dense.out_features,
            "bias": dense.linear.bias is not None,
            "activation_function": dense.activation_name,
            **({"module_output_name": "scores"} if is_last else {}),
        }
        from tidybert.checkpoints.tensor_files import write_tensors

        atomic_write_json(directory / folder / CONFIG_FILE, values)
        write_tensors(directory / folder, dense.state_dict())
