"""LayerNorm, which keeps the residual stream in half precision under CUDA's autocast.

Autocast would return float32 from a norm.  Each dropout, addition and norm between two products
would then move twice the bytes, which is most of a step's time outside products (as MosaicBERT,
Portes et al. 2023, and ModernBERT, Warner et al. 2024, found).  The statistics are float32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm of rows (T, H); under CUDA's autocast its output has the autocast's dtype."""

    def forward(self, input: Tensor) -> Tensor:
        if not (input.is_cuda and torch.is_autocast_enabled("cuda")):
            return super().forward(input)
        dtype = torch.get_autocast_dtype("cuda")
        with torch.autocast("cuda", enabled=False):
            # The kernel takes one dtype; it adds up in float32.
            weight, bias = self.weight.to(dtype), self.bias.to(dtype)
            return functional.layer_norm(
                input.to(dtype), self.normalized_shape, weight, bias, self.eps
            )
