"""Dense: the linear layer of sentence-transformers between pooling and scaling."""

from torch import Tensor, nn

from tidybert.checkpoints.activations import activation_module


class Dense(nn.Module):
    """A linear layer and an activation on vectors, (B, in) to (B, out); it is not trained here.

    Args:
        weight: (out, in).
        bias: (out,) or None.
        activation: a name of ACTIVATIONS.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str) -> None:
        super().__init__()
        size, width = weight.shape
        self.linear = nn.Linear(width, size, bias=bias is not None, device="meta")
        values = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        copies = {name: each.detach().float() for name, each in values.items()}
        self.linear.load_state_dict(copies, assign=True)
        self.activation = activation_module(activation)
        self.activation_name = activation
        self.in_features, self.out_features = width, size
        self.requires_grad_(False).eval()

    def forward(self, vectors: Tensor) -> Tensor:
        found: Tensor = self.activation(self.linear(vectors))
        return found
