"""What ``stridewright gemm`` says of products beyond a plain one: the kernel that runs, the largest |D|, what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from stridewright import Gemm
from stridewright.codegen.cli import app
from stridewright.codegen.cli.general_run import Options, checked, draw, wrong_amax
from stridewright.kernels.config import ConfigError


def gemm(*arguments: str) -> Any:
    """The JSON report of a run on the emulator; its status is 0."""
    result = CliRunner().invoke(app, ["gemm", *arguments, "--on", "emulator", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("options", "fused"),
    [
        (("--bias", "n", "--with-c"), {"bias": "n", "c": "f32"}),
        (("--with-alpha", "--aux"), {"alpha": True, "aux": True}),
        (("--dtype", "nvfp4", "--arch", "sm_100a", "--bias", "m"), {"bias": "m"}),
    ],
)
def test_the_kernel_that_runs_is_the_one_reported(options: tuple[str, ...], fused: dict[str, Any]) -> None:
    report = gemm("64", "64", "64", *options)
    assert {name: report["config"]["fusion"][name] for name in fused} == fused
    assert all(name in report["name"] for name in fused)


def test_one_kernel_is_compiled_and_it_is_the_one_that_runs() -> None:
    made = Gemm(64, 64, 64, "e4m3", "e4m3", promote=128)
    asked = Options(bias="n")
    _, arrays = draw(made, asked, "integers", 0)  # type: ignore[arg-type]
    ran = made.variant_for(arrays.a, arrays.b, **arrays.others)  # type: ignore[attr-defined]
    made.emulate(arrays.a, arrays.b, **arrays.others)
    assert ran.config.fusion.bias == "n"
    assert "build" in vars(ran)
    assert "build" not in vars(made)


def test_the_largest_of_d_is_reported() -> None:
    report = gemm("64", "64", "64", "--amax", "--values", "integers", "--d-dtype", "f32")
    made, asked = Gemm(64, 64, 64, d="f32"), Options(amax=True)
    _, arrays = draw(made, asked, "integers", 0)  # type: ignore[arg-type]
    assert report["amax"] == np.abs(arrays.a.astype(np.float64) @ arrays.b.astype(np.float64).T).max()
    assert gemm("64", "64", "64")["amax"] is None
    text = CliRunner().invoke(app, ["gemm", "64", "64", "64", "--amax", "--on", "emulator"]).stdout
    assert "amax" in text
    assert "the largest |D|" in text


@pytest.mark.parametrize(("n", "k"), [(64, 64), (256, 128), (200, 300)])
def test_scales_of_blocks_are_of_blocks_whatever_the_sizes(n: int, k: int) -> None:
    report = gemm("64", str(n), str(k), "--dtype", "e4m3", "--scales", "block")
    assert {report["config"]["fusion"][name] for name in ("scale_a", "scale_b")} == {"block"}
    assert report["config"]["pipeline"]["promote"] == 128


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "go with 8-bit floats, --dtype e4m3 or e5m2, and not with bf16"),
        (("--dtype", "e4m3", "--arch", "sm_100a"), "have no kernel for sm_100a"),
    ],
)
@pytest.mark.parametrize("k", ["64", "256"])
def test_scales_of_blocks_are_refused_where_there_are_none(k: str, options: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["gemm", "64", "64", k, "--scales", "block", "--on", "emulator", *options])
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--dtype", "fp8"), 'a=\'fp8\': .*; "e4m3" or "e5m2" is meant'),
        (("--dtype", "bfloat16"), '; "bf16" is meant'),
        (("--dtype", "fp32"), '; float32 operands are multiplied as "tf32"'),
        (("--d-dtype", "fp32"), "d='fp32': .*; \"f32\" is meant"),
        (("--activation", "swish"), '; "silu" is meant'),
        (("--activation", "swiglu"), '; "silu" with gated=True is meant'),
        (("--expression", "x // twice"), "'//' at 2 begins a comment"),
        (("--expression", "x /* y */"), r"'/\*' at 2 begins a comment"),
        (("--group-by", "k"), "--group-by k: says how groups are made, and there are none"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is_meant(arch: str, options: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["gemm", "64", "64", "64", "--arch", arch, "--on", "emulator", *options])
    assert result.exit_code == 2
    assert re.search(words, result.output), result.output


def test_groups_of_k_are_asked_for_with_their_number() -> None:
    with pytest.raises(ConfigError, match="group_by='k': says how groups are made, and there are none; groups=8"):
        Gemm(64, 64, 64, group_by="k")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("emit", "64", "64", "64", "--load", "sustaned"),
            "--load: 'sustaned' is none of bursts, sustained; sustained is",
        ),
        (("gemm", "64", "64", "64", "--on", "cpu"), "--on: 'cpu' is none of auto, gpu, emulator"),
    ],
)
def test_a_misspelt_choice_is_refused_in_words_of_ours(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    assert result.exit_code == 2
    assert words in result.output
    assert "Value error" not in result.output


def test_a_kernel_for_sustained_load_is_run_by_its_name() -> None:
    """The package's table has one for this shape; its tiles are too large for the emulator's patience, so only its choice is looked at."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["emit", "4096", "7168", "2048", "--load", "sustained"])
    assert result.exit_code == 0
    assert "_placed_" in result.output.splitlines()[0]
    small = CliRunner().invoke(app, ["gemm", "64", "64", "64", "--load", "sustained", "--on", "emulator", "--json"])
    assert small.exit_code == 0


@pytest.mark.parametrize(
    ("expression", "options"),
    [
        ("x / row", ()),
        ("expf(expf(x))", ()),
        ("x * 2e38 * 10", ()),
        ("x * 2e38 * 10", ("--d-dtype", "e4m3")),
        ("x * 1e4", ("--d-dtype", "f16", "--amax")),
        ("x / 0.0", ("--d-dtype", "f32", "--amax")),
        ("sqrtf(x)", ("--d-dtype", "s8", "--dtype", "s8")),
        ("silu(x / 0.0)", ()),
    ],
)
def test_infinities_and_what_has_no_value_are_right_where_they_should_be(
    expression: str, options: tuple[str, ...]
) -> None:
    assert gemm("64", "64", "64", "--expression", expression, *options)["right"]


@pytest.mark.parametrize(
    ("got", "wanted", "allowed", "dtype", "right"),
    [
        (np.inf, np.inf, np.inf, "f32", True),
        (-np.inf, np.inf, np.inf, "f32", False),
        (3e38, np.inf, np.inf, "f32", False),
        (np.inf, 3e38, 1e30, "f32", False),
        (np.inf, 3.5e38, 1e30, "f32", True),
        (np.inf, 65519.0, 0.5, "f16", False),
        (np.inf, 65519.0, 1.5, "f16", True),
        (-np.inf, -7e4, 1.5, "f16", True),
        (np.inf, -7e4, 1.5, "f16", False),
        (65504.0, 65519.0, 32.0, "f16", True),
        (np.nan, np.nan, np.nan, "f32", True),
        (1.0, np.nan, np.nan, "f32", False),
        (np.nan, 1.0, 0.5, "f32", False),
        (np.nan, 0.0, np.inf, "f32", True),
        (0.0, np.nan, np.nan, "s8", True),
        (1.0, np.nan, np.nan, "s8", False),
        (1.0, 1.25, 0.2, "f32", False),
    ],
)
def test_what_counts_as_right(got: float, wanted: float, allowed: float, dtype: str, right: bool) -> None:
    found = checked(np.array([[got]]), np.array([[wanted]]), np.array([[allowed]]), dtype)
    assert found.passed == right
    assert np.isfinite(found.max_abs_error)


def test_an_infinite_largest_is_right_where_it_should_be() -> None:
    assert wrong_amax(np.inf, np.inf, 1.0) == ""
    assert wrong_amax(3.0, np.nan, 1.0) == ""
    assert wrong_amax(3.0, np.inf, np.inf) == ""
    assert wrong_amax(3.0, np.inf, 1.0) == "amax is 3, and the largest |D| is inf in float64"
    assert wrong_amax(np.inf, 3.0, 1.0) == "amax is inf, and the largest |D| is 3 in float64"
