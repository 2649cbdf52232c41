"""Derived tensor maps move every element of the tile from where the tensor has it to where the tile says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright.layout import Layout, Swizzle, compose, size
from stridewright.layout.hardware import HardwareError, TensorMap, derive_tensor_map, smem_tile
from stridewright.layout.hardware.tensor_copy import copy_plan


def check_moves(tensor: Layout, tile: Any, dtype: str, origin: tuple[int, ...], element: int) -> None:
    """Compare with the definition: element c of the tile is element origin + c of the tensor."""
    derived = derive_tensor_map(tensor, tile, dtype)
    m = derived.tensor_map
    plan = copy_plan(m, derived.coordinate(*origin), 0)
    came_from = dict(zip(plan.smem.tolist(), plan.tensor.tolist(), strict=True))
    extents = [int(size(tile[i] if isinstance(tile, Layout) else tile.layout[i])) for i in range(len(tensor))]
    limits = [int(size(tensor[i])) for i in range(len(tensor))]
    rng = np.random.default_rng(0)
    for _ in range(60):
        c = tuple(int(rng.integers(0, n)) for n in extents)
        inside = all(o + x < n for o, x, n in zip(origin, c, limits, strict=True))
        source = tensor(*(o + x for o, x in zip(origin, c, strict=True))) * element if inside else -1
        assert came_from[int(tile(*c)) * element] == source


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("major", ["k", "mn"])
def test_operand_tiles_of_every_mode(swizzle: str, order: tuple[int, int], major: str) -> None:
    tensor = Layout((192, 256), (256, 1) if major == "k" else (1, 192))
    tile = smem_tile(swizzle, major, "bf16", 64, 64, order)
    check_moves(tensor, tile, "bf16", (128, 64), 2)


def test_edges_of_the_tensor_are_filled() -> None:
    check_moves(Layout((100, 120), (120, 1)), smem_tile("128B", "k", "bf16", 64, 64), "bf16", (64, 64), 2)


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(range(3)),
    st.permutations(range(3)),
    st.tuples(st.sampled_from([8, 16, 32]), st.integers(1, 6), st.integers(1, 5)),
    st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3)),
)
def test_any_orders_of_three_modes(
    order: list[int], position: list[int], box: tuple[int, ...], at: tuple[int, ...]
) -> None:
    # ``position``: which tensor mode is innermost and so on; ``order``: how the tile stacks the other two.
    extents, steps = [0] * 3, [0] * 3
    full = [box[0] * 2, box[1] + 3, box[2] + 4]
    place = 1
    for level, mode in enumerate(position):
        extents[mode], steps[mode] = full[level], place
        place *= full[level] if level else -(-full[0] // 8) * 8
    tensor = Layout(tuple(extents), tuple(steps))
    tile_extents, tile_steps = [0] * 3, [0] * 3
    outer = [level for level in order if level != 0]
    stride = 1
    for level in [0, *outer]:
        tile_extents[position[level]], tile_steps[position[level]] = box[level], stride
        stride *= box[level]
    origin = [0] * 3
    for level, mode in enumerate(position):
        origin[mode] = at[level] * (box[0] if level == 0 else 1)
    check_moves(tensor, Layout(tuple(tile_extents), tuple(tile_steps)), "bf16", tuple(origin), 2)


def test_a_wide_tile_is_split_into_more_dimensions() -> None:
    derived = derive_tensor_map(Layout((512, 512), (512, 1)), smem_tile("128B", "k", "bf16", 128, 128), "bf16")
    assert derived.tensor_map.box == (64, 128, 2)
    assert derived.coordinate(128, 192) == (0, 128, 3)


@pytest.mark.parametrize(
    ("tensor", "tile", "box"),
    [
        (Layout((64, 256), (256, 1)), compose(Swizzle(1, 3, 3), Layout((8, 64), (64, 1))), (16, 4, 8)),
        (Layout((64, 256), (256, 1)), compose(Swizzle(2, 3, 3), Layout((8, 128), (128, 1))), (32, 4, 8)),
        (Layout((64, 256), (256, 1)), compose(Swizzle(3, 3, 3), Layout((8, 128), (128, 1))), (64, 2, 8)),
        (Layout((1024, 64), (64, 1)), compose(Swizzle(3, 3, 3), Layout((512, 64), (64, 1))), (64, 256, 2)),
        (Layout((8, 1024), (1024, 1)), Layout((4, 512), (512, 1)), (256, 2, 4)),
        (Layout((8, 1200), (1200, 1)), Layout((4, 400), (400, 1)), (200, 2, 4)),
        (Layout(2048, 1), Layout(1024, 1), (256, 4)),
    ],
)
def test_a_row_wider_than_its_swizzle_or_a_box_is_split(tensor: Layout, tile: Any, box: tuple[int, ...]) -> None:
    assert derive_tensor_map(tensor, tile, "bf16").tensor_map.box == box
    inner = tile if isinstance(tile, Layout) else tile.layout
    extents = [int(size(inner[i])) for i in range(len(tensor))]
    check_moves(tensor, tile, "bf16", tuple(extents), 2)
    # The last tile, which ends beyond the tensor where the extents do not divide it.
    last = tuple((int(size(tensor[i])) - 1) // n * n for i, n in enumerate(extents))
    check_moves(tensor, tile, "bf16", last, 2)


def test_modes_that_continue_each_other_are_joined() -> None:
    tensor = Layout((64, (8, 16)), (128, (1, 8)))
    derived = derive_tensor_map(tensor, Layout((64, 64), (64, 1)), "bf16")
    assert derived.tensor_map.shape == (128, 64)


def test_boxes_are_not_joined_beyond_256() -> None:
    m = derive_tensor_map(Layout((2, 256, 4), (256, 1, 512)), Layout((2, 256, 1), (256, 1, 0)), "u8").tensor_map
    assert m.box == (256, 2, 1)
    joined = derive_tensor_map(
        Layout(((256, 2), 4), ((1, 256), 512)), Layout(((256, 2), 1), ((1, 256), 0)), "u8"
    ).tensor_map
    assert joined.box == (256, 2, 1)


@pytest.mark.parametrize(
    ("tensor", "tile", "message"),
    [
        (Layout((64, 64), (1, 64)), Layout((64, 64), (64, 1)), "does not transpose"),
        (Layout((64, 100), (100, 1)), Layout((64, (64, 2)), (64, (1, 4096))), "64 does not divide the tensor's 100"),
        (Layout((64, 64), (64, 1)), Layout((64, 64), (72, 1)), "64 apart"),
        (Layout((64, 64), (64, 1)), Layout((64, 64), (0, 1)), "stride of 0"),
        (Layout((64, 64, 2), (64, 1, 4096)), Layout((64, 64), (64, 1)), "3 modes"),
        (Layout(516, 1), Layout(512, 1), "use 2 copies of at most 256"),
        # 104 is no multiple of the span's 64 elements: a third dimension would not see the row's end.
        (Layout((64, 104), (104, 1)), compose(Swizzle(3, 3, 3), Layout((8, 128), (128, 1))), "use 2 copies of 64"),
        (Layout((64, 100), (101, 1)), Layout((64, 64), (64, 1)), r"strides_bytes\[0\]=202"),
        (Layout((64, 64), (64, 2)), Layout((64, 64), (64, 1)), "does not transpose"),
        (
            Layout((4, 4, 4, 4, 4, 64), (64, 256, 1024, 4096, 16384, 1)),
            Layout((2, 2, 2, 2, 2, 64), (64, 128, 256, 512, 1024, 1)),
            "at most 5",
        ),
    ],
)
def test_where_no_map_exists_the_reason_is_given(tensor: Layout, tile: Any, message: str) -> None:
    with pytest.raises(HardwareError, match=message):
        derive_tensor_map(tensor, tile, "bf16")


def test_an_offset_tile_and_a_foreign_swizzle_are_refused() -> None:
    tile = compose(Swizzle(3, 4, 3), Layout((64, 64), (64, 1)))
    with pytest.raises(HardwareError, match="no hardware swizzle"):
        derive_tensor_map(Layout((64, 64), (64, 1)), tile, "bf16")
    good = compose(Swizzle(3, 3, 3), Layout((64, 64), (64, 1)))
    with pytest.raises(HardwareError, match="starts at 64"):
        derive_tensor_map(Layout((64, 64), (64, 1)), type(good)(good.swizzle, 64, good.layout), "bf16")


def test_from_layouts_is_the_same_map() -> None:
    tensor, tile = Layout((128, 128), (128, 1)), smem_tile("128B", "k", "bf16", 64, 64)
    assert TensorMap.from_layouts(tensor, tile, "bf16") == derive_tensor_map(tensor, tile, "bf16").tensor_map


def random_nest(rng: np.random.Generator, extent: int) -> Any:
    """The extent, or a factorisation of it into two."""
    divisors = [d for d in range(2, extent) if extent % d == 0]
    if divisors and rng.random() < 0.5:
        d = int(rng.choice(divisors))
        return (d, extent // d)
    return extent


def random_layout(rng: np.random.Generator, extents: list[int], pad: int) -> Layout:
    """A compact layout (its first run padded to ``pad``) whose runs lie in random order, mode 0's first run innermost."""
    shapes = [random_nest(rng, extent) for extent in extents]
    runs = [
        (i, j, s)
        for i, shape in enumerate(shapes)
        for j, s in enumerate(shape if isinstance(shape, tuple) else (shape,))
    ]
    order = [0, *(1 + rng.permutation(len(runs) - 1)).tolist()]
    strides: dict[tuple[int, int], int] = {}
    step = 1
    for number in order:
        i, j, s = runs[number]
        strides[i, j] = step
        step = -(-step * s // pad) * pad if number == 0 else step * s
    stride = [
        tuple(strides[i, j] for j in range(2)) if isinstance(s, tuple) else strides[i, 0] for i, s in enumerate(shapes)
    ]
    return Layout(tuple(shapes), tuple(stride))


def test_nested_layouts_are_moved_right_or_refused() -> None:
    rng = np.random.default_rng(11)
    moved = 0
    for _ in range(250):
        extents = [int(rng.choice([8, 16, 24, 32, 48, 64]))] + [
            int(rng.integers(1, 13)) for _ in range(rng.integers(0, 3))
        ]
        box = [int(rng.choice([d for d in range(1, n + 1) if i or d % 8 == 0])) for i, n in enumerate(extents)]
        tensor, tile = random_layout(rng, extents, 8), random_layout(rng, box, 1)
        origin = tuple(int(rng.integers(0, -(-n // t))) * t for n, t in zip(extents, box, strict=True))
        try:
            derive_tensor_map(tensor, tile, "bf16")
        except HardwareError:
            continue
        check_moves(tensor, tile, "bf16", origin, 2)
        moved += 1
    assert moved > 80


def test_a_tile_that_would_straddle_a_break_of_the_tensor_is_refused() -> None:
    with pytest.raises(HardwareError, match="straddle"):
        derive_tensor_map(Layout(((24, 4), 8), ((1, 256), 32)), Layout((16, 8), (1, 16)), "bf16")
