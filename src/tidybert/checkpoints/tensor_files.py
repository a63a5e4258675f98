"""Tensors by name in files: one safetensors file or several parts, and a pickle only on request.

A file of weights is untrusted input.  Nothing in it is run.  A file that is truncated, lies about
its offsets, points outside its directory or holds values that are not finite is a WeightsError.
The formats are Hugging Face's: model.safetensors, or parts and a model.safetensors.index.json, and
the same for pytorch_model.bin.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tidybert.checkpoints.tensorflow_bundle import (
    INDEX,
    TensorBundle,
    from_tensorflow,
    named,
    shards_of,
)
from tidybert.errors import WeightsError, param
from tidybert.storage.atomic_files import atomic_file, atomic_write_json
from tidybert.storage.json_objects import parse_json, read_json_object
from tidybert.storage.limits import HEADER_BYTES, TENSORS
from tidybert.storage.model_files import (
    INDEX_SUFFIX,
    ONNX_FOLDER,
    PICKLE_FILE,
    WEIGHTS_FILE,
)
from tidybert.storage.opening import is_plain_name, open_regular, os_reason, present

_SAFETENSORS: Final = Path(WEIGHTS_FILE).suffix
_LENGTH_BYTES: Final = 8
_HELD_BYTES: Final = 2**26
# Under which training programs keep a model's weights beside their own state.
_WRAPPERS: Final = ("state_dict", "model_state_dict", "model")
# Old versions of transformers stored counters, int64, among the weights.
_STORED_DTYPES: Final = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}


def read_tensors(path: str | Path, *, allow_pickle: bool = False) -> dict[str, Tensor]:
    """Every tensor in the weights at ``path``, by its name and with its dtype there, on the CPU."""
    source = _weights_file(Path(path))
    if source.name.endswith(INDEX_SUFFIX):
        tensors = _read_parts(source, allow_pickle=allow_pickle)
    elif source.suffix == INDEX:
        tensors = _read_bundle(source)
    else:
        tensors = _read_file(source, allow_pickle=allow_pickle)
    check_finite(tensors, str(source))
    return tensors


def left_out_of(path: str | Path) -> tuple[str, ...]:
    """What ``read_tensors`` leaves out of a TensorFlow checkpoint; empty for every other form.

    The optimizer's variables and the step in words, with their number, and the names of those that
    are not BERT's.  Raises as ``read_tensors``.
    """
    source = _weights_file(Path(path))
    if source.suffix != INDEX:
        return ()
    found = named(TensorBundle(source).variables)
    optimizer = [f"{len(found.optimizer)} variables of the optimizer"] * bool(found.optimizer)
    return (*optimizer, *found.unknown)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor]) -> Path:
    """Write ``tensors`` as one safetensors file, whole or not at all."""
    path = Path(path)
    target = path / WEIGHTS_FILE if path.is_dir() else path
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_file(target) as partial:
        try:
            # transformers refuses a file whose header does not say which framework wrote it.
            save_file(_without_sharing(stored), partial, {"format": "pt"})
        except SafetensorError as error:
            # The library tells the number of the system's error in its text alone.
            found = re.search(r"os error (\d+)", str(error))
            code = int(found[1]) if found else errno.EIO
            raise OSError(code, os.strerror(code) if found else str(error)) from error
        # The library makes a file that only its owner can read; our other files follow umask.
        # Reading it requires setting it.
        mask = os.umask(0o077)
        os.umask(mask)
        partial.chmod(0o666 & ~mask)
    return target


def write_shards(directory: Path, tensors: Mapping[str, Tensor], max_bytes: int | None) -> None:
    """Write model.safetensors, or its parts and their index, into a directory being filled.

    ``max_bytes`` is that of ``shards_of``.  Raises DiskError.
    """
    shards = shards_of(tensors, max_bytes)
    if len(shards) == 1:
        write_tensors(directory / WEIGHTS_FILE, tensors)
        return
    stem = Path(WEIGHTS_FILE).stem
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        part = f"{stem}-{number:05d}-of-{len(shards):05d}{_SAFETENSORS}"
        write_tensors(directory / part, shard)
        weight_map |= dict.fromkeys(shard, part)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    atomic_write_json(directory / f"{WEIGHTS_FILE}{INDEX_SUFFIX}", index)


def check_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """Raise a WeightsError that names each tensor with NaN or infinite values, and how many."""
    damaged = []
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            # A sum is finite only if every value is, and takes a fraction of a count's time.  The
            # count clears finite values whose sum overflows.
            wide = torch.promote_types(tensor.dtype, torch.float32)
            if torch.isfinite(tensor.sum(dtype=wide)):
                continue
            count = int((~torch.isfinite(tensor)).sum())
            if count:
                damaged.append(f"{name} ({count} of {tensor.numel()})")
    if damaged:
        shown = ", ".join(damaged[:5]) + (f" and {len(damaged) - 5} more" * (len(damaged) > 5))
        raise WeightsError(
            f"{source}: values are not finite in {shown}; the run that wrote them diverged or the "
            f"file is damaged"
        )


def _weights_file(path: Path) -> Path:
    """The file that holds the weights at ``path``, or the index of its parts; WeightsError."""
    if not present(path, error=WeightsError):
        raise WeightsError(f"{path}: no such file or directory")
    if not path.is_dir():
        return path
    for name in (WEIGHTS_FILE, PICKLE_FILE):
        for candidate in (path / name, path / f"{name}{INDEX_SUFFIX}"):
            if present(candidate, error=WeightsError):
                return candidate
    checkpoints = sorted(path.glob(f"*{INDEX}"))
    if len(checkpoints) > 1:
        names = ", ".join(each.name for each in checkpoints[:5])
        raise WeightsError(
            f"{path}: {len(checkpoints)} TensorFlow checkpoints ({names}): keep one here, or name "
            "a directory with one"
        )
    if checkpoints:
        return checkpoints[0]
    if (path / ONNX_FOLDER).is_dir():
        raise WeightsError(
            f"{path}: an ONNX export, which only answers; name the MODEL that it was made from"
        )
    raise WeightsError(
        f"{path}: no weights here; expected {WEIGHTS_FILE}, {WEIGHTS_FILE}{INDEX_SUFFIX} or, with "
        f"{param('allow_pickle', True)}, {PICKLE_FILE}"
    )


def _read_parts(index: Path, *, allow_pickle: bool) -> dict[str, Tensor]:
    weight_map = read_json_object(index, error=WeightsError).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{index}: no 'weight_map' from tensor names to files")
    tensors: dict[str, Tensor] = {}
    for part in sorted(set(map(str, weight_map.values()))):
        # A name with a folder in it could read any file of this user.
        if not is_plain_name(part):
            raise WeightsError(f"{index}: part {part!r:.80} is not a plain file name")
        path = index.parent / part
        if not present(path, error=WeightsError):
            raise WeightsError(f"{index}: part {part!r} is missing")
        for name, tensor in _read_file(path, allow_pickle=allow_pickle).items():
            if name in tensors:
                raise WeightsError(f"{path}: tensor {name!r} is in another part too")
            if weight_map.get(name, part) != part:
                raise WeightsError(
                    f"{path}: holds {name!r}, which {index.name} places in {weight_map[name]!r}"
                )
            tensors[name] = tensor
    for name, part in weight_map.items():
        if name not in tensors:
            raise WeightsError(f"{index}: tensor {name!r} is not in its part {part!r}")
    return tensors


def _read_bundle(index: Path) -> dict[str, Tensor]:
    """A checkpoint of the original code under Hugging Face's names, without ``left_out_of``."""
    bundle = TensorBundle(index)
    found = named(bundle.variables)
    if not found.names:
        raise WeightsError(
            f"{index}: none of its {len(bundle.variables)} variables is of the original BERT code "
            f"(found {', '.join(found.unknown[:3]) or 'none'})"
        )
    for name in found.names:
        _check_dtype(index, name, bundle.variables[name].dtype, _STORED_DTYPES.values())
    return {
        ours: from_tensorflow(theirs, bundle.read(theirs)) for theirs, ours in found.names.items()
    }


def _read_file(path: Path, *, allow_pickle: bool) -> dict[str, Tensor]:
    if path.suffix == _SAFETENSORS:
        return _read_safetensors(path)
    if not allow_pickle:
        raise WeightsError(
            f"{path} is a pickle, which can run code when it is read; if you trust its author read "
            f"it with {param('allow_pickle', True)}, or convert it to {WEIGHTS_FILE}"
        )
    return _read_pickle(path)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    _check_header(path)
    try:
        # The library checks the header's length, every offset, and that they cover the file.
        with safe_open(path, framework="pt") as file:
            names = deque(file.keys())
        tensors = {}
        while names:
            held = 0
            # Its tensors are pages of the file, all of which stay in memory until it is closed.
            with safe_open(path, framework="pt") as file:
                while names and held < _HELD_BYTES:
                    tensors[names[0]] = file.get_tensor(names[0]).clone()
                    held += tensors[names.popleft()].nbytes
        return tensors
    except MemoryError:
        raise WeightsError(f"{path}: too little memory to read these weights") from None
    except (SafetensorError, OSError, ValueError, ArithmeticError, RuntimeError) as error:
        raise WeightsError(
            f"{path}: not a readable safetensors file ({path.stat().st_size} bytes: {error}); it "
            f"is truncated or damaged, copy or download it again"
        ) from error


def _check_header(path: Path) -> None:
    """Refuse what the library lets pass: other files, long headers, repeated names, other dtypes.

    The library says what is wrong with a header of another form.
    """
    with open_regular(path, error=WeightsError) as file:
        try:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > os.fstat(file.fileno()).st_size - _LENGTH_BYTES:
                return
            HEADER_BYTES.check(length, path)
            content = file.read(length)
        except OSError as error:
            raise WeightsError(f"{path}: cannot be read: {os_reason(error)}") from None
    # Parsing takes a second where there are too many.
    TENSORS.check(content.count(b'"dtype"'), path)
    header = parse_json(content.decode(errors="replace"), f"{path}: header", error=WeightsError)
    if not isinstance(header, dict):
        return
    for name, entry in header.items():
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        if name != "__metadata__" and isinstance(dtype, str):
            _check_dtype(path, name, dtype, _STORED_DTYPES)


def _check_dtype(path: Path, name: str, dtype: object, known: Collection[object]) -> None:
    if dtype not in known:
        raise WeightsError(
            f"{path}: {name!r} has the dtype {dtype}; weights are read in float32, float16 or "
            "bfloat16: convert them first"
        )


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with open_regular(path, error=WeightsError) as file:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
    # The damaged byte decides which exception a damaged pickle raises.
    except Exception as error:
        first_line = str(error).strip().splitlines()[:1]
        raise WeightsError(
            f"{path}: cannot be read as weights alone ({' '.join(first_line)})"
        ) from error
    content = _unwrapped(content, path)
    if not isinstance(content, dict):
        raise WeightsError(f"{path}: expected tensors by name, not {type(content).__name__}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise WeightsError(f"{path}: {name!r} is {type(value).__name__}, not a tensor")
        if value.layout != torch.strided or value.is_quantized:
            raise WeightsError(f"{path}: {name!r} is sparse or quantised, not a plain tensor")
        _check_dtype(path, name, value.dtype, _STORED_DTYPES.values())
    return content


def _unwrapped(content: Any, path: Path) -> Any:
    """The tensors of a checkpoint that holds them under one of the usual names, beside others."""
    if not isinstance(content, dict):
        return content
    found = [name for name in _WRAPPERS if isinstance(content.get(name), dict)]
    if len(found) > 1:
        raise WeightsError(
            f"{path}: weights under {' and '.join(map(repr, found))}: write those of one model "
            "into a file of its own"
        )
    return content[found[0]] if found else content


def _without_sharing(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, each with its own memory, which the safetensors library demands."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return apart
