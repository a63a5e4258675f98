"""GraphModel: a MODEL's ONNX graph in the place of its network, run by ONNX Runtime on the CPU.

Loads no torch.  T tokens, B sequences, S longest length, C classes.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.graph_check import check_graph
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, WeightsError, has_package
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.model_files import ONNX_FILE, ONNX_INT8_FILE
from tidybert.storage.opening import present
from tidybert.system.cores import num_threads

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[Any]

INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
LOGITS: Final = "logits"
STATES: Final = "last_hidden_state"
EMBEDDING: Final = "sentence_embedding"
NEXT: Final = "seq_relationship_logits"
_STARTS, _ENDS = "start_logits", "end_logits"
PRECISIONS: Final = {"float32": ONNX_FILE, "int8": ONNX_INT8_FILE}


class Flat(NamedTuple):
    """Sequences end to end: ids and types (T,), and the length of each of the B sequences."""

    input_ids: Ids
    token_type_ids: Ids
    lengths: tuple[int, ...]


def graph_precision(folder: Path, precision: str) -> str:
    """float32 or int8, for one that a user names; UsageError for one that has no graph there."""
    found = [
        name for name, file in PRECISIONS.items() if present(folder / file, error=WeightsError)
    ]
    if precision == "auto":
        return found[0]
    if precision not in found:
        more = (
            "int8 is written by tidybert convert --to onnx --int8"
            if precision == "int8"
            else f"{precision} needs PyTorch and the weights that it was converted from"
        )
        raise UsageError(f"{folder} answers in {' or '.join(found)}, not in {precision}: {more}")
    return precision


class Cpu:
    """Where graphs are, in the place of PyTorch's device."""

    type: Final = "cpu"

    def __str__(self) -> str:
        return self.type


class GraphModel:
    """A graph as ``export_onnx`` writes it, over padded batches.

    Raises as ``check_graph``, WeightsError too for a file that ONNX Runtime cannot open or that
    takes something else; UsageError where ONNX Runtime is not installed.
    """

    device: Final = Cpu()

    def __init__(self, path: Path, config: BertConfig) -> None:
        if not has_package("onnxruntime"):
            raise UsageError(
                f"{path} is a graph, which ONNX Runtime computes: pip install onnxruntime"
            )
        self.path = path
        #: The names of what it takes and gives.
        self.inputs, self.outputs = check_graph(path, config)
        self._process = 0
        if self.inputs not in (INPUTS, INPUTS[:2]):
            raise WeightsError(
                f"{path}: it takes {', '.join(self.inputs)}, and a BERT {', '.join(INPUTS)}: "
                "convert the model again with tidybert convert --to onnx"
            )
        self._has_choices = len(self.session.get_inputs()[0].shape) == 3
        shapes = {each.name: each.shape for each in self.session.get_outputs()}
        #: By name of an output, how many axes it has.
        self.axes = {name: len(shape) for name, shape in shapes.items()}
        if _STARTS in shapes and _ENDS in shapes:
            self.axes[LOGITS] = self.axes[_STARTS] + 1
        width = shapes.get(LOGITS, [None])[-1]
        #: Of a classifier, the number of labels; None where the graph leaves it open.
        self.num_labels: int | None = width if isinstance(width, int) else None

    def require(self, name: str, axes: int, what: str) -> None:
        """Raise WeightsError where it has no such output for a head, ``what``."""
        if self.axes.get(name) != axes:
            found = ", ".join(f"{each} with {count}" for each, count in self.axes.items())
            raise WeightsError(
                f"{self.path}: {what} needs the output {name} with {axes} axes, and the outputs "
                f"are {found}: convert the model again with tidybert convert --to onnx"
            )

    @property
    def session(self) -> Any:
        """ONNX Runtime's session of this process: threads do not survive a fork."""
        if self._process != os.getpid():
            self._session, self._process = _session(self.path), os.getpid()
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_process": 0}

    @cached_property
    def sha256(self) -> str:
        return file_sha256(self.path)

    def __call__(self, flat: Flat) -> dict[str, Floats]:
        """The outputs by name: (T, …) of tokens, (B, …) of sequences; LOGITS of spans (T, 2)."""
        lengths = np.array(flat.lengths)
        is_token = np.arange(lengths.max()) < lengths[:, None]
        found = self.run(*(_padded(each, is_token) for each in (flat.input_ids, None, flat[1])))
        if LOGITS in self.axes and _STARTS in found:
            found[LOGITS] = np.stack((found.pop(_STARTS), found.pop(_ENDS)), axis=2)
        return {name: each[is_token] if each.ndim == 3 else each for name, each in found.items()}

    def run(self, *arrays: Ids) -> dict[str, Floats]:
        """The outputs by name for the INPUTS, (B, S) each; a choice is a sequence."""
        given = dict(zip(self.inputs, arrays, strict=False))
        if self._has_choices and arrays[0].ndim == 2:
            given = {name: each[:, None] for name, each in given.items()}
        found = self.session.run(list(self.outputs), given)
        if self._has_choices and arrays[0].ndim == 2:
            found = [each[:, 0] for each in found]
        return dict(zip(self.outputs, found, strict=True))


def _padded(values: Ids | None, is_token: npt.NDArray[np.bool_]) -> Ids:
    """(B, S) int64 of values (T,), 0 as padding; None is the mask."""
    if values is None:
        return is_token.astype(np.int64)
    cells = np.zeros(is_token.shape, dtype=np.int64)
    cells[is_token] = values
    return cells


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads()
    # Its own messages repeat what the error says.
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        known = onnxruntime.__version__
        reason = str(error).splitlines()[0].rpartition("] : ")[2]
        raise WeightsError(
            f"{path}: ONNX Runtime {known} does not open it: {reason:.300}; install a newer "
            "onnxruntime, or convert the model again with tidybert convert --to onnx"
        ) from None
