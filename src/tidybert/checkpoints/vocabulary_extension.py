"""A MODEL whose vocabulary gets more pieces: the rows that they need in its weights.

A new piece begins as the mean of the pieces that stood for it so far, in the word embeddings and in
the bias of the masked-LM head, whose decoder is tied to them: so its logit is the mean of theirs.
All other numbers stay as they are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from tidybert.atomic_files import atomic_directory
from tidybert.checkpoints.conversion import PREFIX
from tidybert.checkpoints.metadata import CONFIG_FILE, METADATA_FILE, read_metadata, verify
from tidybert.checkpoints.model_directory import SavableTokenizer
from tidybert.checkpoints.tensor_files import read_tensors, write_tensors
from tidybert.configuration import BertConfig, read_json_object
from tidybert.errors import WeightsError

_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
#: Hugging Face's names, without ``bert.``, of what has a row or a number for each piece.
PER_PIECE = (
    _WORD_EMBEDDINGS,
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
)


class ExtensibleModel:
    """A MODEL directory read whole, whatever heads it has; ``save`` writes it with more pieces.

    Raises what ``verify``, ``read_tensors`` and BertConfig raise, and WeightsError for weights
    without word embeddings or with another number of them than config.json says.
    """

    def __init__(self, directory: str | Path, *, allow_pickle: bool = False) -> None:
        directory = Path(directory)
        verify(directory)
        self.config = BertConfig.from_file(directory / CONFIG_FILE)
        self._description = read_json_object(directory / CONFIG_FILE)
        self._metadata = read_metadata(directory)
        self._tensors = read_tensors(directory, allow_pickle=allow_pickle)
        self._per_piece = [name for name in self._tensors if name.removeprefix(PREFIX) in PER_PIECE]
        if not any(name.endswith(_WORD_EMBEDDINGS) for name in self._per_piece):
            raise WeightsError(f"{directory}: the weights have no {_WORD_EMBEDDINGS}")
        for name in self._per_piece:
            if len(self._tensors[name]) != self.config.vocab_size:
                raise WeightsError(
                    f"{directory}: {name} is for {len(self._tensors[name])} tokens, {CONFIG_FILE} "
                    f"says {self.config.vocab_size}"
                )

    def save(
        self,
        directory: str | Path,
        tokenizer: SavableTokenizer,
        vocab_size: int,
        replaces: Mapping[int, Sequence[int]],
    ) -> None:
        """Write a new MODEL directory, whole or not at all.

        vocab_size: of the tokenizer; rows are appended where there are fewer.  replaces: the ids of
        the new pieces, and for each the ids of those that stood for it.  A RUN stays one; its
        metrics go, for texts are read in other pieces now.
        """
        size = max(vocab_size, self.config.vocab_size)
        tensors = {
            name: _extended(tensor, size, replaces) if name in self._per_piece else tensor
            for name, tensor in self._tensors.items()
        }
        description = {**self._description, "vocab_size": size}
        with atomic_directory(directory) as partial:
            text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
            (partial / CONFIG_FILE).write_text(text, encoding="utf-8")
            tokenizer.save(partial)
            write_tensors(partial, tensors)
            if self._metadata is not None:
                metadata = replace(self._metadata, metrics={}).sealed(partial)
                (partial / METADATA_FILE).write_text(metadata.to_json(), encoding="utf-8")


def _extended(tensor: Tensor, size: int, replaces: Mapping[int, Sequence[int]]) -> Tensor:
    """(V, …) to (size, …): new rows are means of old ones."""
    extended = tensor.new_zeros(size, *tensor.shape[1:])
    extended[: len(tensor)] = tensor
    for new, old in replaces.items():
        extended[new] = tensor[torch.tensor(old)].float().mean(0).to(tensor.dtype)
    return extended
