"""A MODEL with more pieces in its vocabulary: its weights get the rows for them.

A new piece begins as the mean of the pieces that it replaces, in the word embeddings and in the
bias of the masked-LM head.  The head's decoder is tied to the embeddings, so the new logit is the
mean of theirs.  All other numbers stay the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from tidybert.checkpoints.conversion import PREFIX
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.tensor_files import write_tensors
from tidybert.checkpoints.weight_loading import check_weights
from tidybert.errors import WeightsError
from tidybert.storage.atomic_files import atomic_directory, atomic_write_text
from tidybert.storage.model_files import CONFIG_FILE
from tidybert.tokenization import BertTokenizer

_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
#: Hugging Face's names, without ``bert.``, of the tensors with a row or a number for each piece.
PER_PIECE = (
    _WORD_EMBEDDINGS,
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
)


class ExtensibleModel:
    """A MODEL with all its tensors, whatever heads it has; ``save`` writes it with more pieces.

    Raises what ModelDirectory raises, and WeightsError for weights without word embeddings, with a
    layer missing, or of other shapes than config.json says.
    """

    def __init__(self, origin: ModelDirectory, *, allow_pickle: bool = False) -> None:
        origin.require_bert()
        self.origin = origin
        self._tensors = origin.tensors(allow_pickle=allow_pickle)
        self._per_piece = [name for name in self._tensors if name.removeprefix(PREFIX) in PER_PIECE]
        if not any(name.endswith(_WORD_EMBEDDINGS) for name in self._per_piece):
            raise WeightsError(f"{origin}: the weights have no {_WORD_EMBEDDINGS}")
        for name in self._per_piece:
            if len(self._tensors[name]) != origin.config.vocab_size:
                raise WeightsError(
                    f"{origin}: {name} is for {len(self._tensors[name])} tokens, {CONFIG_FILE} "
                    f"says {origin.config.vocab_size}"
                )
        check_weights(self._tensors, origin.config, source=str(origin))

    def save(
        self, directory: str | Path, tokenizer: BertTokenizer, replaces: Mapping[int, Sequence[int]]
    ) -> None:
        """Write a new MODEL directory, whole or not at all.

        Args:
            tokenizer: the new one; a larger vocabulary gets more rows.
            replaces: from the id of each new piece to the ids of the pieces that it replaces.

        A RUN stays a RUN, but without metrics: the new pieces change how it reads texts.
        """
        size = max(tokenizer.vocab_size, self.origin.config.vocab_size)
        tensors = {
            name: _extended(tensor, size, replaces) if name in self._per_piece else tensor
            for name, tensor in self._tensors.items()
        }
        description = {**self.origin.description, "vocab_size": size}
        with atomic_directory(directory) as partial:
            text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            atomic_write_text(partial / CONFIG_FILE, text)
            tokenizer.save(partial)
            write_tensors(partial, tensors)
            if self.origin.metadata is not None:
                replace(self.origin.metadata, metrics={}).write(partial)


def _extended(tensor: Tensor, size: int, replaces: Mapping[int, Sequence[int]]) -> Tensor:
    """(V, …) to (size, …): new rows are means of old ones."""
    extended = tensor.new_zeros(size, *tensor.shape[1:])
    extended[: len(tensor)] = tensor
    for new, old in replaces.items():
        extended[new] = tensor[torch.tensor(old)].float().mean(0).to(tensor.dtype)
    return extended
