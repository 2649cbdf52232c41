"""One API for both architectures: what one of them lacks is refused, never left out without a word."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from stridewright import Gemm
from stridewright.codegen.blackwell_gemm import RungGemm
from stridewright.codegen.cli import app
from stridewright.kernels.config import ConfigError, GemmConfig

ADDED = [
    ["--bias", "n"],
    ["--with-c"],
    ["--with-alpha"],
    ["--scales", "row"],
    ["--aux"],
    ["--amax"],
    ["--batch", "2"],
    ["--gated"],
]
LACKING = [["--groups", "2"], ["--scales", "block"], ["--scales", "block", "--dtype", "e4m3"]]


@pytest.mark.parametrize("options", ADDED, ids=" ".join)
def test_both_architectures_take_what_is_added_and_scaled(options: list[str]) -> None:
    for arch in ("sm_90a", "sm_100a"):
        done = CliRunner().invoke(app, ["gemm", "64", "64", "64", "--arch", arch, "--on", "emulator", *options])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("options", LACKING, ids=" ".join)
def test_what_blackwell_s_kernels_lack_is_refused_on_the_command_line(options: list[str]) -> None:
    done = CliRunner().invoke(app, ["gemm", "64", "64", "256", "--arch", "sm_100a", "--on", "emulator", *options])
    assert done.exit_code == 2, done.output
    assert re.search("have no (Blackwell kernel|kernel for sm_100a)", done.output)


@pytest.mark.parametrize("options", ADDED, ids=" ".join)
def test_a_rung_computes_a_plain_product(options: list[str]) -> None:
    done = CliRunner().invoke(app, ["gemm", "64", "64", "64", "--arch", "sm_100a", "--rung", "3", *options])
    assert done.exit_code == 2
    assert "--rung 3: the ladder's kernels compute a @ b.T as it is" in done.output
    a = np.zeros((64, 64), ml_dtypes.bfloat16)
    with pytest.raises(ConfigError, match="rung=3: the ladder's kernels compute"):
        RungGemm(3, 64, 64, 64).emulate(a, a, c=a, beta=1.0)


def test_an_architecture_that_is_not_the_configuration_s_is_refused() -> None:
    blackwell = GemmConfig(arch="sm_100a").replace(tile_n=64)
    with pytest.raises(ConfigError, match="and the given configuration is for 'sm_90a'"):
        Gemm(128, 128, 64, arch="sm_100a", config=GemmConfig())
    with pytest.raises(ConfigError, match="and the given configuration is for 'sm_100a'"):
        Gemm(128, 128, 64, arch="sm_90a", config=blackwell)
    assert Gemm(128, 128, 64, config=blackwell).config.arch == "sm_100a"


@pytest.mark.parametrize(
    ("number", "parameters"), [(2, {"cluster_m": 2}), (1, {"pair": True}), (0, {"stages": 4}), (0, {"launch": "clc"})]
)
def test_early_rungs_refuse_what_their_kernels_cannot_choose(number: int, parameters: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="cannot be changed, its kernel has no such choice"):
        RungGemm(number, 128, 64, 64, **parameters)


@pytest.mark.parametrize("number", [2.0, True, 10, -1])
def test_a_rung_is_a_whole_number_of_the_ladder(number: object) -> None:
    with pytest.raises(ValueError, match="rung "):
        RungGemm(number, 128, 64, 64)  # type: ignore[arg-type]
