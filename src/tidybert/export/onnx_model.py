"""An ONNX file in the place of the model that it was made from, to be checked and measured.

B sequences, S longest length, T tokens, C classes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tidybert.modeling.rows import Rows


class OnnxModel(nn.Module):
    """A head's outputs over Rows, computed by ONNX Runtime on the CPU.

    Args:
        path: the file, which ``export_onnx`` wrote.
        has_choices: whether it is for multiple choice.
    """

    def __init__(self, path: Path, has_choices: bool) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # Batches have a thread each, as those of tidybert's own models.
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self.has_choices = has_choices
        # What runs a model asks its parameters for their device.
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)

    def forward(
        self, rows: Rows, *, output_rows: Tensor | None = None, lower_states: Any = None
    ) -> Tensor:
        """The outputs of ``of_rows`` of the model: (B, C), (B,) or (T, C)."""
        assert lower_states is None
        is_token = torch.arange(rows.max_seqlen) < torch.tensor(rows.lengths)[:, None]
        ids, types = (torch.zeros(is_token.shape, dtype=torch.int64) for _ in range(2))
        ids[is_token], types[is_token] = rows.input_ids, rows.token_type_ids
        found = self.run(ids, is_token.long(), types)
        if "start_logits" in found:
            logits = torch.stack((found["start_logits"], found["end_logits"]), 2)
        else:
            logits = found["logits"]
        per_token = logits[is_token] if logits.dim() == 3 else logits
        if self.has_choices:
            return per_token[:, 0]
        return per_token if output_rows is None else per_token[output_rows]

    def run(self, *tensors: Tensor) -> dict[str, Tensor]:
        """The file's outputs for input_ids, attention_mask and token_type_ids (B, S)."""
        names = [each.name for each in self.session.get_inputs()]
        if self.has_choices and tensors[0].dim() == 2:
            tensors = tuple(each[:, None] for each in tensors)
        given = dict(zip(names, (np.asarray(each) for each in tensors), strict=True))
        outputs = [each.name for each in self.session.get_outputs()]
        found = self.session.run(outputs, given)
        return {name: torch.from_numpy(each) for name, each in zip(outputs, found, strict=True)}
