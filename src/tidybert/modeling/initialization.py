"""New weights, drawn as the original code draws them (modeling.py, create_initializer)."""

from torch import nn


def initialize(module: nn.Module, initializer_range: float) -> None:
    """Draw all weights from a normal truncated at two standard deviations; biases are 0, gains 1.

    Hugging Face draws from a plain normal.
    """
    for part in module.modules():
        initialize_part(part, initializer_range)


def initialize_part(part: nn.Module, initializer_range: float) -> None:
    """The same for the module's own parameters, without its submodules."""
    for name, parameter in part.named_parameters(recurse=False):
        if name == "bias":
            nn.init.zeros_(parameter)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(parameter)
        else:
            bound = 2 * initializer_range
            nn.init.trunc_normal_(parameter, std=initializer_range, a=-bound, b=bound)
