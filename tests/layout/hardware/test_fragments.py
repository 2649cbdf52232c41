"""Fragment maps against kernels that tagged every element on an H200."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stridewright.layout.core import Layout
from stridewright.layout.hardware import HardwareError
from stridewright.layout.hardware import fragments as f

DATA = Path(__file__).parents[2] / "data" / "h200"


@pytest.fixture(scope="module")
def wgmma() -> Any:
    return np.load(DATA / "wgmma_fragments.npz")


@pytest.fixture(scope="module")
def mma() -> Any:
    return np.load(DATA / "mma_fragments.npz")


def evaluated(layout: Layout, threads: int) -> Any:
    """(threads, values) of element numbers."""
    values = layout(np.arange(threads * int(np.prod([len_of(layout[1])])), dtype=np.int64))
    return values.reshape(-1, threads).T


def len_of(layout: Layout) -> int:
    total, stack = 1, [layout.shape]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(item)
        else:
            total *= item
    return total


def test_wgmma_accumulators_are_where_they_were_seen(wgmma: Any) -> None:
    names = [name for name in wgmma.files if name.startswith("d_")]
    assert len(names) == 40
    for name in names:
        n = int(name.rsplit("n", 1)[1])
        place = evaluated(f.wgmma_d_layout(n, name.split("_")[1]), 128)
        seen = wgmma[name].astype(np.int64)
        assert np.array_equal(place, seen[0] + 64 * seen[1]), name


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "e4m3", "s8"])
def test_wgmma_a_in_registers_is_where_it_was_seen(wgmma: Any, dtype: str) -> None:
    seen = wgmma[f"a_{dtype}"].astype(np.int64).reshape(2, 128, -1)
    assert np.array_equal(evaluated(f.wgmma_a_layout(dtype), 128), seen[0] + 64 * seen[1])


def test_mma_sync_fragments_are_where_they_were_seen(mma: Any) -> None:
    checked = 0
    for name in mma.files:
        if not name.startswith("m16") or name.endswith("ptx"):
            continue
        shape, dtype, _, operand = name.split("_")
        m, n, k = (int(x) for x in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
        layout = {"a": f.mma_a_layout, "b": f.mma_b_layout, "d": f.mma_d_layout}[operand](m, n, k, dtype)
        seen = mma[name].astype(np.int64).reshape(2, 32, -1)
        row, column = (seen[1], seen[0]) if operand == "b" else (seen[0], seen[1])
        assert np.array_equal(evaluated(layout, 32), row + (n if operand == "b" else m) * column), name
        checked += 1
    assert checked == 36


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_ldmatrix_registers_come_from_where_they_were_seen(mma: Any, matrices: int, trans: bool) -> None:
    seen = mma[f"ldmatrix_x{matrices}" + ("_trans" if trans else "")].astype(np.int64)
    place = evaluated(f.ldmatrix_layout(matrices, trans), 32).reshape(32, matrices, 2)
    assert np.array_equal(place // 8, seen[..., 0])
    assert np.array_equal(place % 8, seen[..., 1])


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_stmatrix_rows_come_from_where_they_were_seen(mma: Any, matrices: int, trans: bool) -> None:
    seen = mma[f"stmatrix_x{matrices}" + ("_trans" if trans else "")].astype(np.int64)
    place = evaluated(f.stmatrix_layout(matrices, trans), 32).reshape(32, matrices, 2)
    for lane in range(32):
        for register in range(matrices):
            for half in range(2):
                row, column = divmod(int(place[lane, register, half]), 8)
                assert seen[row, column].tolist() == [lane, register, half]


def test_movmatrix_halves_come_from_where_they_were_seen(mma: Any) -> None:
    seen = mma["movmatrix_trans"].astype(np.int64)
    place = evaluated(f.movmatrix_layout(), 32)
    assert np.array_equal(place, 2 * seen[..., 0] + seen[..., 1])


@pytest.mark.parametrize("shape", f.MMA_SHAPES, ids=lambda s: f"{s.name}-{s.dtype}")
def test_every_mma_fragment_covers_its_matrix_once(shape: f.MmaShape) -> None:
    arguments = (shape.m, shape.n, shape.k, shape.dtype)
    for layout, elements in (
        (f.mma_a_layout(*arguments), shape.m * shape.k),
        (f.mma_b_layout(*arguments), shape.n * shape.k),
        (f.mma_d_layout(*arguments), shape.m * shape.n),
    ):
        assert sorted(evaluated(layout, 32).ravel().tolist()) == list(range(elements))


def test_every_wgmma_accumulator_covers_its_tile_once() -> None:
    for n in f.wgmma_n_values():
        assert sorted(evaluated(f.wgmma_d_layout(n), 128).ravel().tolist()) == list(range(64 * n))


@pytest.mark.parametrize(
    ("n", "dtype", "near"), [(204, "bf16", "200, 208"), (40, "s8", "32, 48"), (264, "f16", "248, 256")]
)
def test_illegal_n_names_the_nearest(n: int, dtype: str, near: str) -> None:
    with pytest.raises(HardwareError, match=near):
        f.wgmma_d_layout(n, dtype)


def test_unknown_shapes_are_refused() -> None:
    with pytest.raises(HardwareError, match="m16n8k16"):
        f.mma_a_layout(16, 8, 32, "bf16")
    with pytest.raises(HardwareError, match="x1, x2 or x4"):
        f.ldmatrix_layout(3)
    with pytest.raises(HardwareError, match="wgmma takes"):
        f.wgmma_a_layout("f32")
