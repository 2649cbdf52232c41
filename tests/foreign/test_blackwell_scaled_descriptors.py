"""Descriptors, scale factor ids, columns and copies of block-scaled kernels that the CuTe DSL compiles, beside those of our layouts.

They are taken from the registers of every tcgen05.mma and tcgen05.cp while QuACK's kernels (CuTe DSL, its trivial block-scaled MMA and its scale
layouts) run on the emulator. Ours are the constants of our own kernel with the same tile; its layouts are held against the DSL's own functions, too.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.emulator.namespace import namespace
from stridewright.kernels.blackwell import Derivation, derive
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.layout import Layout, size
from stridewright.layout.hardware import MatrixDescriptor, decode_instruction_descriptor
from stridewright.layout.hardware.scale_factors import scale_layout_of

from .test_blackwell_scaled import Scaled, operand, tensor
from .test_foreign_kernels import skip_unless_available

pytestmark = pytest.mark.slow

ADDRESS = 0x3FFF
"""A descriptor's address field, in units of 16 bytes."""
COLUMN = 0xFFFF

FORMATS = {"mxfp8": ("e4m3", "e8m0", 32, 128), "mxfp4": ("e2m1", "e8m0", 32, 256), "nvfp4": ("e2m1", "e4m3", 16, 256)}
"""Elements, factors, vector, and the K of a stage: 128 bytes of elements."""
TILES = {"128x128": ((128, 128), (1, 1)), "128x192": ((128, 192), (1, 1)), "256x256": ((256, 256), (2, 1))}


@dataclass
class Seen:
    """What one block's threads issued, in order: (A, B, instruction, scale A, scale B) and (column, descriptor)."""

    products: list[tuple[int, ...]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)


def watched(format: str, tile: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Any, Seen]:
    skip_unless_available("quack")
    from .quack_gemm import QuackGemm

    element, scale, vector, depth = FORMATS[format]
    (rows, columns), cluster = TILES[tile]
    names, found = namespace(), {}
    plain_mma, plain_copy = names["tcgen05_mma"], names["tcgen05_copy"]

    def words(g: Any, m: Any, *values: Any) -> tuple[int, ...]:
        lane = int(np.flatnonzero(np.ones(g.width, np.bool_) if m is None else m)[0])
        return tuple(int(x[lane]) if isinstance(x, np.ndarray) else int(x) for x in values)

    def mma(g: Any, m: Any, kind: str, group: int, ws: bool, in_memory: bool, d: Any, a: Any, b: Any, word: Any, *rest: Any) -> None:  # fmt: skip
        scales = rest[4]  # after accumulate, disabled lanes, scale of D, vector
        found.setdefault(g.cta.ctaid, Seen()).products.append(words(g, m, a, b, word, *scales))
        plain_mma(g, m, kind, group, ws, in_memory, d, a, b, word, *rest)

    def copy(g: Any, m: Any, group: int, shape: str, multicast: str, address: Any, descriptor: Any, *rest: Any) -> None:
        assert (shape, multicast) == ("32x128b", "warpx4")
        found.setdefault(g.cta.ctaid, Seen()).copies.append(words(g, m, address, descriptor))  # type: ignore[arg-type]
        plain_copy(g, m, group, shape, multicast, address, descriptor, *rest)

    monkeypatch.setitem(names, "tcgen05_mma", mma)
    monkeypatch.setitem(names, "tcgen05_copy", copy)
    kind = Scaled(element, scale, vector, (rows, columns), cluster)
    kernel = QuackGemm(folder, kind.tile, kind.cluster, dtype=element, arch="sm_100a", scale=scale, vector=vector)
    random, k = np.random.default_rng(0), 2 * depth
    a, b = operand(random, rows, k, kind, element), operand(random, 2 * columns, k, kind, element)
    d = np.full((rows, 2 * columns), np.nan, ml_dtypes.bfloat16)
    arrays = {0x7F00_0000_0000 + (i << 36): x for i, x in enumerate((a.data, b.data, d, a.scales, b.scales))}
    at = list(arrays)
    given = "e2m1x2" if element == "e2m1" else element
    batched = [tensor(at[i], arrays[at[i]][None], t) for i, t in enumerate((given, given, "bf16"))]
    launch = kernel.launch(
        *batched, clusters=2, scales=(tensor(at[3], a.scales, scale), tensor(at[4], b.scales, scale))
    )
    # Another text, so that this translation is no other test's.
    launch.emulate(arrays, edit=lambda text: text + "\n// watched\n", strict=False)
    assert np.array_equal(d, (a.values.astype(np.float64) @ b.values.astype(np.float64).T).astype(np.float32).astype(ml_dtypes.bfloat16))  # fmt: skip
    return found


def ours(format: str, tile: str) -> Derivation:
    (rows, columns), cluster = TILES[tile]
    problem = Problem(a=format, b=format)
    config = GemmConfig(arch="sm_100a", problem=problem).replace(
        tile_m=rows, tile_n=columns, tile_k=FORMATS[format][3], pair=cluster == (2, 1), stages=2
    )
    return derive(config)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("format", FORMATS)
def test_descriptors_ids_and_columns_are_the_dsl_s(
    format: str, tile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derivation = ours(format, tile)
    scales, steps = derivation.scales, derivation.k_steps
    assert scales is not None
    found = watched(format, tile, tmp_path, monkeypatch)
    assert found
    for seen in found.values():
        assert seen.products
        assert len(seen.products) % steps == 0
        # The DSL's words differ from step to step by the ids, in the order of the steps.
        ids = [int(scales.a.step_ids(step)) for step in range(steps)]
        words = {derivation.instruction_descriptor + (one << 29) + (one << 4) for one in ids}
        assert {word for _, _, word, _, _ in seen.products} == words
        for first in range(0, len(seen.products), steps):
            products = seen.products[first : first + steps]
            for position, operand_ in enumerate((derivation.a, derivation.b)):
                assert {one[position] & ~ADDRESS for one in products} == {operand_.descriptor & ~ADDRESS}
                start = products[0][position] & ADDRESS
                assert [(one[position] & ADDRESS) - start for one in products] == [operand_.step_advance(i) for i in range(steps)]  # fmt: skip
            assert [decode_instruction_descriptor(one[2], derivation.kind).scale_a_id for one in products] == ids
            assert [decode_instruction_descriptor(one[2], derivation.kind).scale_b_id for one in products] == ids
            for position, slot in ((3, scales.a), (4, scales.b)):
                start = products[0][position] & COLUMN
                assert [(one[position] & COLUMN) - start for one in products] == [slot.step_columns(i) for i in range(steps)]  # fmt: skip
                # CuTe keeps the id in the address's two top bits as well.
                assert [one[position] >> 30 & 3 for one in products] == ids


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("format", FORMATS)
def test_copies_are_the_dsl_s(format: str, tile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage's copies have our descriptor, and each atom goes from our place in the slot to our column."""
    derivation = ours(format, tile)
    assert derivation.scales is not None
    word = MatrixDescriptor("sm_100a", 0, 16, 128, "none").encode()
    lbo = 0x3FFF << 16  # of 16 bytes of K there is no second column: not looked at
    slots = (derivation.scales.a, derivation.scales.b)
    each = sum(size(slot.source) for slot in slots)
    for seen in watched(format, tile, tmp_path, monkeypatch).values():
        assert seen.copies
        assert len(seen.copies) % each == 0
        assert {one & ~ADDRESS & ~lbo for _, one in seen.copies} == {word & ~lbo}
        for first in range(0, len(seen.copies), each):
            copies = seen.copies[first : first + each]
            for slot in slots:
                own, copies = copies[: size(slot.source)], copies[size(slot.source) :]
                column, place = min(to & COLUMN for to, _ in own), min(one & ADDRESS for _, one in own)
                moved = {((to & COLUMN) - column, ((one & ADDRESS) - place) * 16) for to, one in own}
                assert moved == {(slot.destination(i), slot.source(i)) for i in range(size(slot.source))}


@pytest.mark.parametrize("vector", [16, 32])
def test_layouts_in_global_memory_are_the_dsl_s(vector: int) -> None:
    """tile_atom_to_shape_SF of the DSL, evaluated on every row and vector."""
    skip_unless_available("quack")
    import cutlass.cute as cute
    from cutlass.utils import blockscaled_layout

    shapes = [(128, 512), (384, 1024), (256, 768)]
    found: dict[tuple[int, int], str] = {}

    @cute.jit  # type: ignore[untyped-decorator]
    def layouts() -> None:
        found.update({shape: str(blockscaled_layout.tile_atom_to_shape_SF((*shape, 1), vector)) for shape in shapes})

    cute.compile(layouts)
    for (rows, k), text in found.items():
        theirs, own = Layout.parse(text.replace("_", "")), scale_layout_of(rows, k, vector)
        for row, element in itertools.product(range(0, rows, 3), range(0, k, vector)):
            assert theirs(row, element, 0) == own(row, element)
    assert len(found) == len(shapes)
