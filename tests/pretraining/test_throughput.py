"""Operations a token, and the peak of a device."""

import pytest
import torch

from tidybert.configuration import BertConfig
from tidybert.pretraining.throughput import flops_per_token, peak_flops


def test_operations_of_base_are_about_six_a_parameter() -> None:
    config = BertConfig.from_name("base")

    # All rows of the last layer would be read, and no word were masked.
    whole = 12 * 12 * 768**2
    assert flops_per_token(config, 1, 0) == 6 * whole + 12 * 12 * 768
    # Of 85 M weights in the layers, 5.3 M are the last one's after attention.
    read = 0.15 + 1 / 128
    assert flops_per_token(config, 128, 0.15) == pytest.approx(
        6 * (85e6 - 5.3e6 * (1 - read) + 0.15 * 24e6) + 12 * 12 * 768 * 128, rel=0.01
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("Tesla T4", None),
    ],
)
def test_the_peak_is_that_of_the_device_by_its_name(
    name: str, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda each: (asked.append(each), name)[1])

    assert peak_flops(torch.device("cuda", 1)) == expected
    assert asked == [torch.device("cuda", 1)]
    assert peak_flops(torch.device("cpu")) is None
    slower = peak_flops(torch.device("cuda"), mixed=False)
    assert slower is None if expected is None else 0 < slower < expected / 10
