"""Save a model as a directory that tidybert and transformers open."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tidybert.atomic_files import files_together
from tidybert.checkpoints.conversion import to_huggingface
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.tensor_files import check_finite, write_tensors
from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError
from tidybert.model_files import CONFIG_FILE, METADATA_FILE, WEIGHTS_FILE
from tidybert.tokenization import BertTokenizer

_CLASSIFIERS = ("BertForSequenceClassification", "BertForTokenClassification")


def save_model_directory(
    directory: str | Path,
    *,
    model_state: Mapping[str, Tensor],
    config: BertConfig,
    tokenizer: BertTokenizer,
    metadata: ModelMetadata,
    architecture: str,
    problem_type: str | None = None,
) -> ModelMetadata:
    """Write a model that tidybert and transformers open, into a new or an existing directory.

    A full disk leaves the directory as it was: all files are written before the first one moves
    into place.  A kill between the moves leaves a directory that ``ModelDirectory.verify`` refuses.
    Other files in the directory stay.

    Args:
        model_state: our state dict; its tensors are finite and keep their dtypes.
        metadata: its label_names go into config.json too; this function sets its hashes.
        architecture: transformers' name of the class ("BertForSequenceClassification").
        problem_type: transformers' name of the loss, or None.

    Returns:
        The metadata as written.

    Raises:
        WeightsError: a value is not finite, a parameter has no Hugging Face name, the number of
            label names does not fit the classifier, or a write fails.
    """
    directory = Path(directory)
    check_finite(model_state, str(directory))
    tensors = to_huggingface(model_state, config)
    description = _config_json(config, model_state, metadata, architecture, problem_type)
    try:
        with files_together(directory, first=METADATA_FILE, last=WEIGHTS_FILE) as partial:
            (partial / CONFIG_FILE).write_text(description, encoding="utf-8")
            tokenizer.save(partial)
            write_tensors(partial, tensors)
            sealed = metadata.write(partial)
    except OSError as error:
        raise WeightsError(f"{directory}: the model cannot be saved: {error}") from error
    return sealed


def _config_json(
    config: BertConfig,
    state: Mapping[str, Tensor],
    metadata: ModelMetadata,
    architecture: str,
    problem_type: str | None,
) -> str:
    """The text of config.json in Hugging Face's form."""
    values: dict[str, Any] = {"architectures": [architecture], "model_type": config.model_type}
    values |= config.to_dict()
    names = metadata.label_names
    if architecture in _CLASSIFIERS:
        num_labels = len(state["classifier.weight"])
        # transformers writes LABEL_0, LABEL_1, ... for classes without names.
        names = names or tuple(f"LABEL_{i}" for i in range(num_labels))
        if len(names) != num_labels:
            raise WeightsError(
                f"{len(names)} label names do not fit a classifier of {num_labels} outputs"
            )
    if names is not None:
        values["id2label"] = {str(i): name for i, name in enumerate(names)}
        values["label2id"] = {name: i for i, name in enumerate(names)}
    if problem_type is not None:
        values["problem_type"] = problem_type
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
