"""What ``explain`` says beside the derivation: which device bounds the shape, where the configuration comes from, who loads for whom."""

from __future__ import annotations

import pytest

from stridewright import Gemm
from stridewright.codegen import tuned
from stridewright.codegen.explain import explain
from stridewright.codegen.speed_of_light import A100, B200, H100, H200, Device, require_device
from stridewright.kernels.config import GemmConfig


@pytest.mark.parametrize(
    ("formats", "times", "moved"),
    [
        # The data sheet: 2.25 PFLOP/s of bf16, and four times that, 9, of fp4; bytes of A, B, D and of a factor for each 16 elements.
        (("bf16", "bf16", "bf16"), 1, 2 * 512 * (512 + 512 + 512)),
        (("nvfp4", "nvfp4", "bf16"), 4, 2 * 512 * 512 * 9 // 16 + 2 * 512 * 512),
    ],
)
def test_a_blackwell_kernel_is_held_against_a_b200(formats: tuple[str, str, str], times: int, moved: int) -> None:
    text = explain(Gemm(512, 512, 512, *formats, "sm_100a"))
    assert f"B200: {times * B200.peak() / 1e12:.0f} TFLOP/s" in text
    assert f"At least {moved / 8e6:.2f} us" in text


@pytest.mark.parametrize(("arch", "device"), [("sm_100a", H200), ("sm_90a", B200), ("sm_90a", A100)])
def test_a_device_that_does_not_run_the_kernel_is_refused(arch: str, device: Device) -> None:
    with pytest.raises(ValueError, match=f"device {device.name}: runs no kernel of {arch}"):
        explain(Gemm(256, 256, 128, arch=arch), device)
    assert require_device("sm_90a", H100) is H100
    assert require_device("sm_103a") is B200


def test_it_says_where_the_configuration_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "The configuration was given." in explain(Gemm(512, 512, 512, config=GemmConfig()))
    assert "Chosen for load sustained from measured times" in explain(Gemm(8192, 8192, 8192, load="sustained"))
    monkeypatch.setattr(tuned, "lookup", lambda *given, **named: None)
    text = explain(Gemm(8192, 8192, 8192, load="sustained"))
    assert "Chosen by the selection model, which has no sustained of its own" in text


def test_operands_that_a_cluster_shares_are_said_to_be_multicast() -> None:
    text = explain(Gemm(512, 512, 512, config=GemmConfig().replace(cluster_m=2, cluster_n=1)))
    assert "B is multicast: 2 tiles" in text
    assert "A is multicast" not in text
