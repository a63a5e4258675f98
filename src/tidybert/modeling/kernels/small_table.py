"""Lookup in a table of a few rows, the token types: on a CPU a product with a one-hot matrix.

The lookup's own backward adds T rows one by one.  T tokens, V rows of the table, H width.
"""

from torch import Tensor
from torch.nn import functional

from tidybert.modeling.kernels.cpu_autocast import float32_on_a_cpu


# Autocast would round a product, and with it the embeddings' sum, to half precision.
@float32_on_a_cpu
def small_table_embedding(ids: Tensor, table: Tensor) -> Tensor:
    """(T, H): the rows of ``table`` (V, H) that ``ids`` (T,) int64 name."""
    if table.device.type != "cpu":
        return functional.embedding(ids, table)
    return functional.one_hot(ids, table.shape[0]).to(table.dtype) @ table
