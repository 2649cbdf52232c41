"""The generated source: self-contained, made of the hand-written files and the derived constants, the same where nothing differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.expression import coordinate_expression, swizzle_expression
from stridewright.codegen.source import generate
from stridewright.kernels.config import GemmConfig
from stridewright.layout import Layout, Swizzle, SwizzledLayout

SNAPSHOTS = Path(__file__).parent / "snapshots"
CONFIGS = {
    "default": GemmConfig(),
    "small": GemmConfig().replace(tile_m=64, tile_n=40, consumers=1, stages=8),
    "direct": GemmConfig().replace(tile_m=256, tile_n=72, stages=3, store="direct"),
}


def derived_part(source: str) -> str:
    """What the layouts gave: from the first derived section to the multiply's wrapper."""
    first, last = source.index("// ======== The tile, and who"), source.index("// ======== the multiply")
    return source[first:last]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_derived_part_is_as_reviewed(name: str) -> None:
    """After a wanted change: write ``derived_part(generate(config))`` into the snapshot, and review its diff."""
    assert derived_part(generate(CONFIGS[name])) == (SNAPSHOTS / f"{name}.cuh").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CONFIGS)
def test_the_source_is_self_contained(name: str) -> None:
    source = generate(CONFIGS[name])
    assert "#include" not in source
    assert 'extern "C" __global__' in source
    assert build(source, arch="sm_90a").kernel("stridewright_gemm").spill_store_bytes == 0


def test_the_source_does_not_depend_on_the_sizes() -> None:
    config = GemmConfig()
    assert Gemm(512, 512, 256, config=config).source == Gemm(8192, 1024, 64, config=config).source


def test_every_derived_section_names_the_layout_it_comes_from() -> None:
    source = derived_part(generate(GemmConfig()))
    for layout in (
        "S<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))",
        "S<3,3,3> o ((8,32),(64,1)):((64,512),(1,0))",
        "((4,8,4),(2,2,32)):((128,1,16),(64,8,512))",
    ):
        assert layout in source


@pytest.mark.slow
def test_every_legal_tile_compiles_without_complaint() -> None:
    for tile_m, consumers in ((64, 1), (128, 1), (128, 2), (256, 1), (256, 2)):
        for tile_n in range(8, 257, 8):
            for store in ("tma", "direct"):
                config = GemmConfig().replace(tile_m=tile_m, tile_n=tile_n, consumers=consumers, stages=2, store=store)
                if not config.violations():
                    build(generate(config), arch="sm_90a", use_cache=False)


@pytest.mark.parametrize(
    "parameters",
    [
        {"tile_m": 256, "tile_n": 192, "stages": 2, "store": "direct"},
        {"tile_m": 256, "tile_n": 192, "stages": 2},
        {"tile_m": 128, "tile_n": 192, "consumers": 1},
        {"tile_m": 256, "tile_n": 96, "consumers": 1},
        {"tile_m": 64, "tile_n": 256, "consumers": 1},
    ],
    ids=str,
)
def test_the_largest_tiles_compile_without_spilling(parameters: dict[str, object]) -> None:
    config = GemmConfig().replace(**parameters)
    assert build(generate(config), arch="sm_90a").complaints == ()


def evaluate(expression: str, **names: int) -> int:
    """A C++ expression of unsigned integers, evaluated by Python's rules, which are the same for + * / % & ^ >> << below 2^32."""
    python = re.sub(r"(0x[0-9a-f]+|\d+)u", r"\1", expression).replace("/", "//")
    return int(eval(python, {"__builtins__": {}}, names))


modes = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 40)), min_size=1, max_size=3)


@given(st.lists(modes, min_size=1, max_size=3), st.data())
def test_an_expression_is_the_layout_at_every_coordinate(
    parts: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    layout = Layout(
        tuple(tuple(extent for extent, _ in part) for part in parts),
        tuple(tuple(stride for _, stride in part) for part in parts),
    )
    names = [f"c{i}" for i in range(len(parts))]
    expression = coordinate_expression(layout, names)
    for _ in range(5):
        coordinate = [data.draw(st.integers(0, _size(part) - 1)) for part in parts]
        assert evaluate(expression, **dict(zip(names, coordinate, strict=True))) == layout(*coordinate)


def _size(part: list[tuple[int, int]]) -> int:
    result = 1
    for extent, _ in part:
        result *= extent
    return result


@given(st.integers(0, 3), st.integers(0, 4), st.integers(3, 5), st.integers(0, 2**16))
def test_a_swizzle_expression_is_the_swizzle(bits: int, base: int, shift: int, offset: int) -> None:
    swizzled = SwizzledLayout(Swizzle(bits, base, shift), 0, Layout(2**16))
    assert evaluate(swizzle_expression(swizzled), x=offset) == Swizzle(bits, base, shift)(offset)
