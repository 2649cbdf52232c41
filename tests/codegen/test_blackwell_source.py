"""The generated Blackwell sources: self-contained, assembled without a word of complaint, each rung one idea beside the one before."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

from stridewright import Gemm
from stridewright.codegen.blackwell_gemm import RungGemm
from stridewright.codegen.blackwell_select import with_most_stages
from stridewright.codegen.blackwell_source import generate, used
from stridewright.codegen.build import Build, build
from stridewright.kernels.blackwell_ladder import rungs
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.fusion import Fusion

from .blackwell_cases import CONVERTED, TYPES, depth_of

RUNGS = range(10)
FORMS = [(False, 64), (False, 128), (True, 128), (True, 256)]


def assert_clean(made: Build) -> None:
    """No warning of the compiler, no complaint of the assembler, no spill, no stack."""
    resources = made.kernel("stridewright_gemm")
    assert (resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes) == (0, 0, 0)
    assert made.complaints == ()
    assert not [line for line in made.log.splitlines() if "warning" in line.lower()]


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("number", RUNGS)
def test_every_rung_is_assembled_without_a_warning(number: int, arch: str) -> None:
    rung = rungs(arch)[number]
    source = generate(rung.config, rung)
    assert "#include" not in source
    assert_clean(build(source, arch=arch))


@pytest.mark.parametrize("number", RUNGS)
def test_every_line_of_a_rung_is_used(number: int) -> None:
    """The compiler would warn of an unused constant; functions that nothing calls it does not mention."""
    rung = rungs()[number]
    source = re.sub(r"//[^\n]*", "", generate(rung.config, rung))
    for name in re.findall(r"^(?:template <[^>]*> )?DEVICE [^(;=]*?(\w+)\(", source, re.MULTILINE):
        assert len(re.findall(rf"\b{name}\b", source)) > 1, name


@pytest.mark.parametrize("number", RUNGS)
def test_a_rung_says_what_it_is_and_that_nobody_ran_it(number: int) -> None:
    head = generate(rungs()[number].config, rungs()[number])[:600]
    assert f"Rung {number} of the ladder" in head
    assert "Emulated and assembled; never run on hardware." in head


def test_rungs_from_the_fourth_on_differ_in_a_part_or_in_constants() -> None:
    """Taken apart into files, the sources of two neighbours differ in few of them."""

    def files(number: int) -> dict[str, str]:
        rung = rungs()[number]
        parts = re.split(r"^// ======== (.*?) =*$", generate(rung.config, rung), flags=re.MULTILINE)
        return {name: text for name, text in zip(parts[1::2], parts[2::2], strict=True) if "/blackwell/" in name}

    def hand_written(number: int) -> set[str]:
        wrappers = {"tcgen05.cuh", "output.cuh", "ptx.cuh", "launch_control.cuh"}
        return {name for name in files(number) if name.split("/")[-1] not in wrappers}

    changes = {number: hand_written(number) ^ hand_written(number - 1) for number in range(4, 10)}
    folder = "kernels/cuda/blackwell/"
    assert changes[4] == {folder + "tiles_one.cuh", folder + "tiles_static.cuh"}
    assert changes[5] == {folder + "tiles_static.cuh", folder + "tiles_clc.cuh"}
    assert changes[6] == {folder + "single.cuh", folder + "pair.cuh"}
    assert changes[7] == {folder + "order_row.cuh", folder + "order_grouped.cuh"}
    assert changes[8] == {folder + "epilogue_direct.cuh", folder + "epilogue_tma.cuh"}
    assert changes[9] == {folder + "cluster_alone.cuh", folder + "cluster_multicast.cuh", folder + "loads.cuh"}
    # What both have is the same text, the kernel itself included.
    for number in range(4, 10):
        before, after = files(number - 1), files(number)
        assert before[folder + "gemm.cuh"] == after[folder + "gemm.cuh"]


def test_the_source_does_not_depend_on_the_sizes() -> None:
    config = GemmConfig(arch="sm_100a")
    assert Gemm(512, 512, 256, config=config).source == Gemm(8192, 1024, 64, config=config).source


def test_every_derived_section_names_the_layout_it_comes_from() -> None:
    source = generate(GemmConfig(arch="sm_100a"))
    for layout in (
        "S<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))",
        "S<3,3,3> o ((8,32),(64,1)):((64,512),(1,0))",
        "(128,256):(65536,1)",
        "(32,4,32,8):(65536,2097152,1,32)",
        "S<3,4,3> o (32,4,2):(128,16,64)",
    ):
        assert layout in source


def test_only_what_nothing_names_is_left_out() -> None:
    blocks = ["// ---- a", "DEVICE int f() { return g(); }", "// ---- b", "DEVICE int g() { return N; }", "constexpr int N = 1;\nconstexpr int M = 2;", "int k() { return g(); }  // f"]  # fmt: skip
    assert used(blocks) == ["// ---- b", "DEVICE int g() { return N; }", "constexpr int N = 1;", "int k() { return g(); }  // f"]  # fmt: skip


def test_the_two_architectures_have_one_api() -> None:
    hopper, blackwell = Gemm(512, 512, 256), Gemm(512, 512, 256, arch="sm_100a")
    assert isinstance(blackwell, Gemm)
    assert {name for name in dir(hopper) if not name.startswith("_")} <= set(dir(blackwell))
    assert "wgmma" in hopper.source
    assert "tcgen05.mma" in blackwell.source
    assert "wgmma" not in blackwell.source
    assert "tcgen05" in blackwell.ptx
    assert blackwell.cubin[:4] == b"\x7fELF"
    assert "Tensor memory, and the multiply" in blackwell.explain()
    assert type(Gemm(512, 512, 256, config=GemmConfig(arch="sm_103a"))) is type(blackwell)


def test_a_rung_of_another_size_or_number_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="rung 10: the ladder has rungs 0 to 9"):
        RungGemm(10, 64, 64, 64)
    with pytest.raises(ValueError, match="takes K-major operands"):
        RungGemm(1, 64, 64, 64, a_major="mn")
    for dtype in ("e4m3", "nvfp4"):
        with pytest.raises(ValueError, match=f"rung 3: type '{dtype}' has no rung, the ladder's are bf16 and f16"):
            RungGemm(3, 64, 64, 64, dtype)


def build_all(configs: list[GemmConfig]) -> int:
    for config in configs:
        assert_clean(build(generate(config), arch=config.arch, use_cache=False))
    return len(configs)


def every_form(arch: str = "sm_100a") -> list[GemmConfig]:
    """Every tile, store, pair of majors, and launch in turn, with as many stages as fit."""
    base = GemmConfig(arch=arch).replace(accumulators=2)
    found = []
    for number, ((pair, m), n, (a, b), store) in enumerate(
        itertools.product(FORMS, range(16, 257, 16), itertools.product(("k", "mn"), repeat=2), ("tma", "direct"))
    ):
        dtype = ("bf16", "f16")[number // 2 % 2]
        problem = Problem(a=dtype, b=dtype, d=dtype, a_major=a, b_major=b)  # type: ignore[arg-type]
        launch = ("static", "clc")[number % 3 == 0]
        config = with_most_stages(base.replace(pair=pair, tile_m=m, tile_n=n, store=store, launch=launch, problem=problem), 6)  # fmt: skip
        assert config is not None
        found.append(config)
    return found


def test_a_sample_of_all_tiles_is_assembled_without_a_warning() -> None:
    assert build_all(every_form()[5::61]) >= 8


EVERYTHING = Fusion(
    alpha=True, c="bf16", bias="n", bias_format="f16", activation="gelu", aux=True, amax=True, scale_a="row", scale_b="row",
    scale_d=True,
)  # fmt: skip


def every_typed_form(arch: str = "sm_100a") -> list[GemmConfig]:
    """Every mixture of formats, the widest tile of every form of a multiply, plain and with all that is fused."""
    found = []
    forms = [
        *({"pair": pair, "tile_m": m} for pair, m in FORMS),
        *({"stationary": True, "tile_m": m} for m in (32, 64, 128)),
    ]
    forms += [{"a_in": "tensor"}, {"a_in": "tensor", "pair": True, "tile_m": 256}, {"a_in": "registers"}]
    gated = dataclasses.replace(EVERYTHING, gated=True)
    for number, (types, form, fusion) in enumerate(
        itertools.product((*TYPES, *CONVERTED), forms, (Fusion(), EVERYTHING, gated))
    ):
        a, b, results = types
        problem = Problem(a=a, b=b, d=results[number // 3 % len(results)])
        store = ("tma", "direct")[number // 3 % 3 == 0 or fusion.gated]
        depth = 64 if types in CONVERTED else depth_of(a, b)
        config = GemmConfig(arch=arch, problem=problem, fusion=fusion).replace(
            tile_n=256, tile_k=depth, store=store, launch=("static", "clc")[number % 5 == 0], **form
        )
        chosen = with_most_stages(config, 6)
        if chosen is not None:
            found.append(chosen)
    return found


def test_a_sample_of_all_formats_is_assembled_without_a_warning() -> None:
    assert build_all(every_typed_form()[3::29]) >= 10
    assert build_all(every_typed_form("sm_103a")[7::67]) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("part", range(8))
def test_every_format_is_assembled_without_a_warning(arch: str, part: int) -> None:
    assert build_all(every_typed_form(arch)[part::8]) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_every_tile_is_assembled_without_a_warning(arch: str) -> None:
    assert build_all(every_form(arch)) == 512
