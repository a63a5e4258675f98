"""Which units a processor has, as far as the environment lets them be used."""

import pytest
import torch

from tidybert.modeling.kernels import processor as module


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with all units, and an environment that limits none."""
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    for asked, *_ in module._UNITS.values():
        monkeypatch.setattr(torch.cpu, asked, lambda: True)


def units() -> list[str]:
    return [unit for unit in module._UNITS if module.has(unit)]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("isa", "expected"),
    [
        ("ALL", ["AVX2", "AVX-512", "AVX-512 BF16", "AMX"]),
        ("avx512_core_bf16", ["AVX2", "AVX-512", "AVX-512 BF16"]),
        ("AVX512_CORE_VNNI", ["AVX2", "AVX-512"]),
        ("AVX2_VNNI", ["AVX2"]),
        ("AVX2", ["AVX2"]),
        ("SSE41", []),
    ],
)
def test_a_unit_that_the_environment_leaves_out_is_not_there(
    isa: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)

    assert units() == expected


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("capability", "expected"),
    [("AVX512_VNNI", 4), ("AVX512", 4), ("AVX2", 1), ("DEFAULT", 0)],
)
def test_so_is_one_that_pytorch_does_not_use(
    capability: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)

    assert len(units()) == expected


@pytest.mark.usefixtures("server")
def test_the_processor_itself_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert not module.has("AMX")
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    assert units() == ["AVX2", "AVX-512"]
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    assert units() == []


@pytest.mark.parametrize(
    ("described", "is_amd"),
    [("vendor_id\t: AuthenticAMD\n", True), ("vendor_id\t: GenuineIntel\n", False)],
)
def test_the_vendor_of_the_processor_decides(
    described: str, is_amd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_given, **_named: described)

    assert module.is_amd.__wrapped__() is is_amd


def test_without_the_file_the_processors_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_given: object, **_named: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("pathlib.Path.read_text", missing)
    monkeypatch.setattr("platform.processor", lambda: "AMD64 Family 25, AuthenticAMD")

    assert module.is_amd.__wrapped__()
