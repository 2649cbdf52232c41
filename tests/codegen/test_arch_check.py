"""The check of an architecture runs everything there is, says without its GPU what to do, and reports a wrong kernel as wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stridewright import Gemm
from stridewright.codegen import arch_check, launch
from stridewright.codegen.arch_check import Case, cases, check_emulated, check_in_process
from stridewright.codegen.cli import app
from stridewright.kernels.config import GemmConfig

no_blackwell = pytest.mark.skipif(launch.gpu_available("sm_100a")[0], reason="there is a Blackwell here")


@pytest.mark.parametrize("arch", arch_check.ARCHITECTURES)
def test_every_case_has_its_own_name_and_a_valid_configuration_for_every_shape(arch: str) -> None:
    every = cases(arch)
    assert len({case.name for case in every}) == len(every)
    for case in every:
        for shape in (*arch_check.EDGES, arch_check.TIMED):
            gemm = case.make(*shape)
            assert gemm.config.arch == arch
            assert gemm.config.problems() == []


def test_a_blackwell_check_has_every_rung_and_every_form() -> None:
    every = cases("sm_100a")
    assert [case.name.split(",")[0] for case in every[:10]] == [f"rung {number}" for number in range(10)]
    configs = [case.make(512, 512, 512).config for case in every[10:]]
    for values in (
        {(c.cluster.pair, c.tile.m) for c in configs} >= {(False, 64), (False, 128), (True, 128), (True, 256)},
        {c.schedule.launch for c in configs} == {"static", "clc"},
        {(c.problem.a_major, c.problem.b_major) for c in configs} == {(a, b) for a in ("k", "mn") for b in ("k", "mn")},
        {c.problem.a for c in configs} == {"bf16", "f16"},
        {c.pipeline.accumulators for c in configs} == {1, 2},
    ):
        assert values


def test_an_architecture_without_kernels_is_refused() -> None:
    with pytest.raises(ValueError, match="sm_80: has no kernels here; there are sm_90a, sm_100a, sm_103a"):
        cases("sm_80")


def test_a_kernel_on_the_emulator_is_right_and_a_broken_one_is_wrong() -> None:
    rung = cases("sm_100a")[2]
    assert all(finding.right for finding in check_emulated(rung))

    def broken(m: int, n: int, k: int) -> Gemm:
        gemm = rung.make(m, n, k)
        gemm.__dict__["source"] = gemm.source.replace("k_first > 0 || step > 0", "step > 0")
        return gemm

    found = check_emulated(Case("broken", broken))
    assert [finding.right for finding in found] == [False, False]
    assert "elements are wrong" in found[0].words

    def leaking(m: int, n: int, k: int) -> Gemm:
        gemm = rung.make(m, n, k)
        gemm.__dict__["source"] = gemm.source.replace("if (warp == 0) tmem_free", "if (false) tmem_free")
        return gemm

    assert "did not deallocate" in check_emulated(Case("leaking", leaking))[0].words


@no_blackwell
def test_without_its_gpu_the_command_says_so_and_offers_the_emulator() -> None:
    result = CliRunner().invoke(app, ["check", "--arch", "sm_100a"])
    assert result.exit_code == 2
    assert "no GPU to check sm_100a on" in result.output
    assert "--on emulator" in result.output


@no_blackwell
def test_a_case_that_dies_is_a_finding_and_takes_nothing_with_it() -> None:
    found = check_in_process("sm_100a", 0, timed=False)
    assert [finding.right for finding in found] == [False]
    assert found[0].words


def test_the_command_runs_on_the_emulator_and_writes_its_record(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    arguments = ["check", "--arch", "sm_100a", "--on", "emulator", "--only", "rung 1", "-o", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 kernels, 2 results: all right" in result.output
    record = json.loads(path.read_text())
    assert (record["arch"], record["on"], len(record["findings"])) == ("sm_100a", "emulator", 2)
    assert all(finding["right"] for finding in record["findings"])
    assert CliRunner().invoke(app, ["check", "--on", "emulator", "--only", "no such word"]).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a"])
def test_everything_is_right_on_the_emulator(arch: str) -> None:
    for case in cases(arch):
        for finding in check_emulated(case):
            assert finding.right, (case.name, finding.words)


@pytest.mark.gpu
def test_a_sample_is_right_on_the_gpu_there_is() -> None:
    arch = launch.device_arch()
    for number in range(2):
        found = check_in_process(arch, number, timed=True)
        assert [finding.words for finding in found if finding.right is False] == []
        assert found[-1].us
    assert GemmConfig(arch=arch).problems() == []
