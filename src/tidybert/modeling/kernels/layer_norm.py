"""LayerNorm, which can keep the residual stream in half precision under CUDA's autocast.

Autocast returns float32 from a norm.  Each dropout, addition and norm between two products then
moves twice the bytes, which is most of a step's time outside products (as MosaicBERT, Portes et al.
2023, and ModernBERT, Warner et al. 2024, found).  Half precision costs half a percent of the loss
of a small model (benchmarks/NOTES.md), so a model has it only where a recipe asks for it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm of rows (T, H).

    With ``keeps_half``, its output has the dtype of CUDA's autocast, with float32 statistics.
    """

    keeps_half = False

    def forward(self, input: Tensor) -> Tensor:
        if not (self.keeps_half and input.is_cuda and torch.is_autocast_enabled("cuda")):
            return super().forward(input)
        dtype = torch.get_autocast_dtype("cuda")
        with torch.autocast("cuda", enabled=False):
            # The kernel takes one dtype; it adds up in float32.
            weight, bias = self.weight.to(dtype), self.bias.to(dtype)
            return functional.layer_norm(
                input.to(dtype), self.normalized_shape, weight, bias, self.eps
            )


def keep_half_residual(model: nn.Module) -> None:
    """Have every LayerNorm of the model keep half precision."""
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.keeps_half = True
