"""Read the files of sentence-transformers in a MODEL directory.

modules.json lists Transformer, Pooling, Dense and Normalize with a folder each; prompts and the
length of vectors are in config_sentence_transformers.json.  Both forms are read:
sentence_transformers.models.Pooling with a boolean for each mode, and from version 5.4 on
sentence_transformers.sentence_transformer.modules.pooling.Pooling with pooling_mode.  Source:
sentence_transformers/base/model.py and the classes of the modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.checkpoints.activations import ACTIVATIONS
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_form import POOLING_KEYS, POOLINGS, SentenceForm, longest_text
from tidybert.errors import ConfigError, WeightsError
from tidybert.storage.json_objects import parse_json, read_json_object
from tidybert.storage.limits import JSON_BYTES
from tidybert.storage.model_files import (
    CONFIG_FILE,
    MODULES_FILE,
    PROMPTS_FILE,
    SENTENCE_FILE,
    TOKENIZER_CONFIG_FILE,
)
from tidybert.storage.opening import is_plain_name, present, read_text

if TYPE_CHECKING:
    from tidybert.checkpoints.dense import Dense

_DEFAULT_ACTIVATION: Final = "torch.nn.modules.activation.Tanh"
_PACKAGE: Final = "sentence_transformers."
_MODULES: Final = ("Transformer", "Pooling", "Dense", "Normalize")
_SENTENCE: Final = "sentence_embedding"
# Other values of these keys would change the vectors.
_DENSE_VALUES: Final = {
    "module_input_name": (_SENTENCE,),
    "module_output_name": (_SENTENCE, None),
    "use_residual": (False,),
}
_SENTENCE_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
    "processing_kwargs": ({}, None),
    "query_length": (None,),
    "document_length": (None,),
    "query_expansion": (None,),
}


def read_sentence_form(directory: ModelDirectory) -> SentenceForm:
    """What the files of sentence-transformers say; the defaults of SentenceForm where none is."""
    path = directory.path / MODULES_FILE
    settings = _object(directory.path / SENTENCE_FILE)
    length = _count(settings, "max_seq_length", directory.path / SENTENCE_FILE)
    if not present(path, error=ConfigError):
        return SentenceForm(max_seq_length=length)
    _check_values(settings, _SENTENCE_VALUES, directory.path / SENTENCE_FILE)
    if settings.get("do_lower_case") and not directory.tokenizer.do_lower_case:
        raise ConfigError(
            f"{directory.path / SENTENCE_FILE}: do_lower_case is true, and the tokenizer keeps "
            f"capital letters: set do_lower_case in {TOKENIZER_CONFIG_FILE} too"
        )
    if length is None:
        # The newer form has the length there; a value above all positions means no limit.
        length = longest_text(directory.path)
    pooling, dense, normalize, graph_width = _read_modules(directory, path)
    path = directory.path / PROMPTS_FILE
    values = _object(path)
    _check_values(values, {"model_type": ("SentenceTransformer",)}, path)
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(each, str | None) for each in prompts.values()
    ):
        raise ConfigError(f"{path}: prompts is {prompts!r:.60}; expected texts by name")
    prompts = {name: text or "" for name, text in prompts.items()}
    default = values.get("default_prompt_name")
    if default is not None and default not in [*prompts]:
        raise ConfigError(
            f"{path}: default_prompt_name is {default!r:.60}, which is not in prompts"
        )
    kept = _count(values, "truncate_dim", path)
    return SentenceForm(pooling, dense, normalize, prompts, default, length, kept, graph_width)


def _read_modules(
    directory: ModelDirectory, path: Path
) -> tuple[str, tuple[Dense, ...], bool, int | None]:
    """The pooling, the Dense modules, whether a Normalize follows, and ``graph_width``."""
    value = parse_json(read_text(path, JSON_BYTES, error=ConfigError), path)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ConfigError(f"{path}: a list of JSON objects was expected")
    modules = [_module(each, path) for each in value]
    kinds = [kind for kind, _ in modules]
    plain = [kind for kind in kinds[2:] if kind == "Dense"]
    normalize = kinds[-1:] == ["Normalize"]
    if kinds != ["Transformer", "Pooling", *plain, *(["Normalize"] if normalize else [])]:
        raise ConfigError(
            f"{path}: the modules are {', '.join(kinds) or 'none'}; tidybert computes Transformer, "
            "Pooling, any number of Dense, and Normalize at the end"
        )
    if modules[0][1]:
        raise ConfigError(
            f"{path}: the Transformer is in the folder {modules[0][1]!r:.60}; tidybert reads it in "
            f"the directory itself, beside {MODULES_FILE}"
        )
    folders = [folder for _, folder in modules]
    if len(set(folders)) < len(folders):
        raise ConfigError(f"{path}: two modules are in one folder")
    width = directory.config.hidden_size
    pooling = _read_pooling(directory.path / folders[1] / CONFIG_FILE, width)
    dense: list[Dense] = []
    graph_width = None
    for kind, folder in modules[2:]:
        if kind == "Dense":
            found = _read_dense(directory, folder, width)
            if isinstance(found, int):
                width = graph_width = found
            else:
                dense.append(found)
                width = found.out_features
        else:
            values = directory.path / folder / CONFIG_FILE
            _check_values(_object(values), {"module_input_name": (_SENTENCE,)}, values)
    return pooling, tuple(dense), normalize, graph_width


def _module(entry: Mapping[str, Any], path: Path) -> tuple[str, str]:
    """A module's class without its package, and its folder."""
    kind, folder = entry.get("type"), entry.get("path")
    name = kind.rpartition(".")[2] if isinstance(kind, str) else ""
    if not isinstance(kind, str) or not kind.startswith(_PACKAGE) or name not in _MODULES:
        raise ConfigError(
            f"{path}: tidybert does not know the module {kind!r:.80}; it computes "
            f"{', '.join(_MODULES)}: convert the model, or use it with sentence-transformers"
        )
    # A name with a folder in it could read any file of this user.
    if not isinstance(folder, str) or (folder and not is_plain_name(folder)):
        raise ConfigError(f"{path}: the path {folder!r:.60} of {kind} is not a plain folder name")
    return name, folder


def _read_pooling(path: Path, width: int) -> str:
    values = read_json_object(path)
    _check_values(values, {"include_prompt": (True,)}, path)
    mode = values.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else mode
    if modes is None:
        modes = [name for name, key in POOLING_KEYS.items() if values.get(key)] or ["mean"]
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS:
        shown = " and ".join(map(str, modes)) if isinstance(modes, list) else repr(modes)
        raise ConfigError(
            f"{path}: the pooling is {shown:.80}; tidybert computes one of {', '.join(POOLINGS)}"
        )
    given = values.get("embedding_dimension", values.get("word_embedding_dimension", width))
    if given != width:
        raise ConfigError(
            f"{path}: the pooling is for states of {given!r:.20} numbers, and the encoder's have "
            f"{width}: the files do not belong together"
        )
    return str(modes[0])


def _read_dense(directory: ModelDirectory, name: str, width: int) -> Dense | int:
    """The module; of one that a graph computes the numbers of its vectors."""
    folder = directory.path / name
    path = folder / CONFIG_FILE
    values = read_json_object(path)
    _check_values(values, _DENSE_VALUES, path)
    activation = values.get("activation_function", _DEFAULT_ACTIVATION)
    if activation not in [*ACTIVATIONS]:
        raise ConfigError(
            f"{path}: the activation_function is {activation!r:.80}; tidybert computes "
            f"{', '.join(ACTIVATIONS)}"
        )
    size = _count(values, "out_features", path)
    if directory.graph is not None:
        if size is None:
            raise ConfigError(f"{path}: out_features is missing")
        return size
    from tidybert.checkpoints.dense import Dense
    from tidybert.checkpoints.tensor_files import read_tensors

    tensors = read_tensors(folder, allow_pickle=directory.allow_pickle)
    has_bias = values.get("bias", True)
    shapes = {name: tuple(each.shape) for name, each in tensors.items()}
    expected: dict[str, Any] = {"linear.weight": (size, width)}
    if has_bias:
        expected["linear.bias"] = (size,)
    if shapes != expected or not all(each.is_floating_point() for each in tensors.values()):
        raise WeightsError(
            f"{folder}: its weights are {shapes!s:.160}; the Dense of {CONFIG_FILE} after vectors "
            f"of {width} numbers has {expected}"
        )
    return Dense(tensors["linear.weight"], tensors.get("linear.bias"), activation)


def _object(path: Path) -> dict[str, Any]:
    """A JSON object, empty where the file is missing."""
    return read_json_object(path) if present(path, error=ConfigError) else {}


def _check_values(
    values: Mapping[str, Any], expected: Mapping[str, tuple[Any, ...]], path: Path
) -> None:
    """Raise ConfigError for a key whose value would change the vectors."""
    for key, allowed in expected.items():
        if key in values and values[key] not in allowed:
            raise ConfigError(
                f"{path}: {key} is {values[key]!r:.60}; tidybert computes "
                f"{' or '.join(map(repr, allowed))}"
            )


def _count(values: Mapping[str, Any], key: str, path: Path) -> int | None:
    """A whole number from 1 on, or None; raises ConfigError for any other value."""
    value = values.get(key)
    # type() and not isinstance: to Python, true is an int.
    if value is not None and (type(value) is not int or value < 1):
        raise ConfigError(f"{path}: {key} is {value!r:.40}; expected a whole number from 1 on")
    return value
