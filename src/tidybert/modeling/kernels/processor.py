"""What the processor multiplies with, asked in one place: its flags decide, never a timing.

A timing would choose otherwise from run to run, and results with it.  ``ATEN_CPU_CAPABILITY`` and
``ONEDNN_MAX_CPU_ISA`` have PyTorch and oneDNN compute as on a lesser processor: a unit that either
leaves out is not there.  MKL reads neither.  docs/performance.md says what is chosen where.
"""

import os
import platform
from functools import cache
from pathlib import Path
from typing import Final, Literal

import torch

Unit = Literal["AVX2", "AVX-512", "AVX-512 BF16", "AMX"]

# Of each unit PyTorch's question for it, ATen's least capability, and oneDNN's least set.
_UNITS: Final[dict[Unit, tuple[str, str, str]]] = {
    "AVX2": ("_is_avx2_supported", "AVX2", "AVX2"),
    "AVX-512": ("_is_avx512_supported", "AVX512", "AVX512_CORE"),
    "AVX-512 BF16": ("_is_avx512_bf16_supported", "AVX512", "AVX512_CORE_BF16"),
    "AMX": ("_is_amx_tile_supported", "AVX512", "AVX512_CORE_AMX"),
}
# oneDNN's sets ("CPU Dispatcher Control" in its guide), each with all before it.
_ISAS: Final = (
    *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"),
    *("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16"),
)


def has(unit: Unit) -> bool:
    """Whether the processor has the unit, and the environment lets it be used."""
    asked, capability, isa = _UNITS[unit]
    supported = getattr(torch.cpu, asked, None)
    now = torch.backends.cpu.get_cpu_capability()
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()
    return (
        is_x86()
        and supported is not None
        and bool(supported())
        and (now.startswith("AVX512") or now == capability)
        and (most not in _ISAS or _ISAS.index(isa) <= _ISAS.index(most))
    )


def is_x86() -> bool:
    """Whether it is an x86 of 64 bits."""
    return platform.machine().lower() in ("x86_64", "amd64")


@cache
def is_amd() -> bool:
    """Whether it is AMD's, where MKL does not use its kernels for AVX-512."""
    try:
        # Other systems than Linux have the vendor in the processor's name.
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        described = platform.processor()
    return "AuthenticAMD" in described
