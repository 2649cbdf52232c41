"""The matrix and instruction descriptors that the CuTe DSL's compiler computes, beside ours for the same tile.

They are taken from the registers of every tcgen05.mma while its kernel runs on the emulator: what NVIDIA's code multiplies with, after all of
its own arithmetic. Ours come from the layouts alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stridewright.codegen.emulator.namespace import namespace
from stridewright.layout.hardware import instruction_descriptor, recognise, smem_tile

from .test_blackwell_kernels import KERNELS
from .test_foreign_kernels import PREPARE, operands, skip_unless_available

pytestmark = pytest.mark.slow

ADDRESS = 0x3FFF
"""The descriptor's address field, in units of 16 bytes."""


@dataclass(frozen=True)
class Tile:
    """What a kernel of KERNELS multiplies: M and N of one product, blocks that hold it, and the k of a stage."""

    m: int
    n: int
    k: int = 64
    blocks: int = 1
    kind: str = "f16"


TILES = {
    "cute-1-cta": Tile(128, 128),
    "cute-1-cta-64-rows": Tile(64, 96),
    "cute-2-cta": Tile(256, 256, blocks=2),
    "cute-2-cta-128-rows": Tile(128, 128, blocks=2),
    "cute-2-cta-cluster-4x2": Tile(256, 128, blocks=2),
    "cute-mn-major": Tile(128, 192),
    "cute-2-cta-mn-major": Tile(256, 128, blocks=2),
    "cute-e5m2": Tile(128, 64, 128, kind="f8f6f4"),
    "cute-s8": Tile(128, 128, 128, kind="i8"),
}


def multiplied(name: str, folder: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """(A's descriptor, B's, the instruction's) of every product of a small run, in order for each block that issues."""
    kernel = KERNELS[name]
    skip_unless_available(kernel.package)
    run = PREPARE[kernel.package](kernel, folder)
    names = namespace()
    plain = names["tcgen05_mma"]
    found: dict[Any, list[tuple[int, int, int]]] = {}

    def watched(
        g: Any, m: Any, kind: str, group: int, ws: bool, in_memory: bool, d: Any, a: Any, b: Any, word: Any, *rest: Any
    ) -> None:
        lane = int(np.flatnonzero(np.ones(g.width, np.bool_) if m is None else m)[0])
        one = tuple(int(x[lane]) if isinstance(x, np.ndarray) else int(x) for x in (a, b, word))
        found.setdefault(g.cta.ctaid, []).append((one[0], one[1], one[2]))
        plain(g, m, kind, group, ws, in_memory, d, a, b, word, *rest)

    monkeypatch.setitem(names, "tcgen05_mma", watched)
    random = np.random.default_rng(3)
    a, b, d = operands(kernel, random.integers(-4, 5, (256, 128)), random.integers(-4, 5, (256, 128)))
    # Another text, so that this translation is no other test's.
    run(a, b, d, strict=False, edit=lambda text: text + "\n// watched\n")
    return [one for products in found.values() for one in products]


@pytest.mark.parametrize("name", TILES)
def test_descriptors_are_those_of_our_layouts(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, tile = KERNELS[name], TILES[name]
    products = multiplied(name, tmp_path_factory.mktemp(name), monkeypatch)
    word = instruction_descriptor(
        kind=tile.kind,
        m=tile.m,
        n=tile.n,
        a=kernel.dtype,
        b=kernel.dtype,
        d={"s32": "s32"}.get(kernel.d_dtype, "f32"),
        a_major="k" if kernel.a_major == "k" else "mn",
        b_major="k" if kernel.b_major == "k" else "mn",
        saturate=tile.kind == "i8",  # the DSL asks for it; sums this small are the same either way
        cta_group=tile.blocks,
    )
    assert {fields for _, _, fields in products} == {word}
    for position, (rows, major) in enumerate(((tile.m, kernel.a_major), (tile.n, kernel.b_major))):
        ours = "k" if major == "k" else "mn"
        # A pair's blocks hold half of the rows each. TMA fills MN-major tiles atom by atom along k first.
        layout = smem_tile("128B", ours, kernel.dtype, rows // tile.blocks, tile.k, (0, 1) if ours == "k" else (1, 0))
        operand = recognise(layout, kernel.dtype, "sm_100a", ours)
        seen = [product[position] for product in products]
        assert {one & ~ADDRESS for one in seen} == {operand.descriptor.encode() & ~ADDRESS}
        steps = [operand.k_advance(i) for i in range(4)]
        for first in range(0, len(seen), 4):
            start = seen[first] & ADDRESS
            assert [(one & ADDRESS) - start for one in seen[first : first + 4]] == steps
            assert start * 16 % 1024 == 0


def test_every_form_of_the_dsl_kernel_is_compared() -> None:
    compared = {(KERNELS[name].a_major, tile.blocks, tile.kind) for name, tile in TILES.items()}
    assert compared >= {
        ("k", 1, "f16"),
        ("k", 2, "f16"),
        ("m", 1, "f16"),
        ("m", 2, "f16"),
        ("k", 1, "f8f6f4"),
        ("k", 1, "i8"),
    }
