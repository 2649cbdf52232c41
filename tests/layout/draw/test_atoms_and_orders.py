"""Fragments by the name of their instruction, and orders of tiles as the kernel's scheduler defines them."""

from __future__ import annotations

import pytest

from stridewright.layout import LayoutError
from stridewright.layout.draw import atom_view, fragment_view, grouped_order, tensor_memory_view
from stridewright.layout.hardware import atoms, mma_b_layout, wgmma_d_layout
from stridewright.layout.hardware.tensor_memory_moves import tensor_memory_access

from .reading import elements, overlaps


@pytest.mark.parametrize(
    ("name", "operand", "rows", "columns", "threads"),
    [
        ("wgmma.m64n16k16.f32.bf16.bf16.ss", None, 64, 16, 128),
        ("wgmma.m64n16k16.f32.bf16.bf16.rs", "A", 64, 16, 128),
        ("mma.m16n8k16.f32.bf16", "A", 16, 16, 32),
        ("mma.m16n8k16.f32.bf16", "B", 8, 16, 32),
        ("mma.m16n8k32.s32.s8", "D", 16, 8, 32),
        ("ldmatrix.x4", None, 32, 8, 32),
        ("movmatrix.trans", None, 8, 8, 32),
        ("tcgen05.ld.16x256b.x2", None, 16, 16, 32),
        ("tcgen05.ld.16x32bx2.x4", None, 16, 8, 32),
        ("tcgen05.mma.f16.cta_group1.m128n16k16", None, 128, 16, 128),
    ],
)
def test_an_atom_has_the_instructions_extent(
    name: str, operand: str | None, rows: int, columns: int, threads: int
) -> None:
    facts = atom_view(name, operand).facts
    assert (facts["rows"], facts["columns"], facts["threads"], facts["replicas"]) == (rows, columns, threads, 0)


def test_atoms_are_the_tables_layouts() -> None:
    by_name = atom_view("wgmma.m64n24k16.f32.bf16.bf16.ss", "D")
    by_layout = fragment_view(wgmma_d_layout(24), 64)
    assert [e.tip for e in elements(by_name, "g", "owner")] == [e.tip for e in elements(by_layout, "g", "owner")]
    b = atom_view("mma.m16n8k16.f32.bf16", "B")
    assert [e.tip for e in elements(b, "g", "owner")] == [
        e.tip for e in elements(fragment_view(mma_b_layout(16, 8, 16, "bf16"), 8), "g", "owner")
    ]
    load = atom_view("tcgen05.ld.16x128b.x2")
    assert load.body == tensor_memory_view(tensor_memory_access("16x128b", 2)).body


@pytest.mark.parametrize("kind", ["wgmma", "mma.m", "ldmatrix", "stmatrix", "movmatrix", "tcgen05.ld", "tcgen05.mma"])
def test_some_of_every_kind_are_drawn_or_refused_in_words(kind: str) -> None:
    refusals: list[tuple[str | None, str]] = []
    for name in [name for name in atoms(kind) if name.startswith(kind)][::97]:
        for operand in (None, *(part for part, _ in atoms(name)[name].layouts)):
            try:
                drawing = atom_view(name, operand)
            except LayoutError as error:
                refusals.append((operand, str(error)))
            else:
                assert len(drawing.svg()) < 1_000_000
    # Without an operand named, only what is too large to draw.
    assert all(operand is not None or "at most" in message for operand, message in refusals), refusals


def test_several_columns_of_tensor_memory_do_not_overlap() -> None:
    assert overlaps(atom_view("tcgen05.mma.f16.cta_group1.m128n16k16")) == []


def test_what_no_thread_holds_is_refused() -> None:
    with pytest.raises(LayoutError, match="from shared memory"):
        atom_view("wgmma.m64n16k16.f32.bf16.bf16.ss", "A")
    with pytest.raises(LayoutError, match="it has A, B, D"):
        atom_view("wgmma.m64n16k16.f32.bf16.bf16.ss", "C")
    with pytest.raises(LayoutError, match="there are wgmma"):
        atom_view("wgmma.m64n17")


@pytest.mark.parametrize(("rows", "columns", "group"), [(8, 8, 4), (7, 5, 3), (3, 9, 8), (1, 1, 1)])
def test_the_grouped_order_is_the_schedulers(rows: int, columns: int, group: int) -> None:
    """kernels/cuda/scheduler.cuh, TileScheduler::take, with clusters of one."""
    expected = []
    for turn in range(rows * columns):
        first_row = turn // (group * columns) * group
        within = turn - turn // (group * columns) * group * columns
        height = min(rows - first_row, group)
        expected.append((first_row + within % height, within // height))
    assert grouped_order(rows, columns, group) == expected
    with pytest.raises(LayoutError):
        grouped_order(0, columns, group)
