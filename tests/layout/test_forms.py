"""Not only the function but the form: nesting, order and extents of results are those of CuTe wherever it has the same function.

Strides of modes of extent 1 are left out of account: CuTe itself prints them as the sources of its types happen to fall.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from layout_definitions import leaves, random_layout, value, values

import stridewright.layout as library
from stridewright.layout import (
    Layout,
    LayoutError,
    Swizzle,
    append,
    coalesce,
    compose,
    filter,
    nullspace,
    ordered_layout,
    prepend,
    size,
    tile_to_shape,
)

CASES = 400


def form(layout: Layout) -> tuple[Any, Any]:
    """Shape and stride, the strides of modes of extent 1 put to 0."""

    def clear(s: Any, d: Any) -> Any:
        return tuple(map(clear, s, d)) if isinstance(s, tuple) else 0 if s == 1 else d

    return layout.shape, clear(layout.shape, layout.stride)


def handed(peer: Any, operand: Any) -> Any:
    if isinstance(operand, Layout):
        return peer.Layout(operand.shape, operand.stride)
    return tuple([handed(peer, x) for x in operand]) if isinstance(operand, tuple) else operand


def ask(operation: Callable[[], Any]) -> Layout | None:
    try:
        answer = operation()
        return Layout(answer.shape, answer.stride)
    except Exception:
        return None


def random_tiler(rng: random.Random, layout: Layout, whole: bool) -> Any:
    kind = rng.choice("ilnt" if whole else "iln")
    if kind == "t":
        return tuple([random_tiler(rng, mode, isinstance(mode.shape, tuple)) for mode in layout])
    if kind == "i":
        return rng.choice((1, 2, 3, 4))
    return None if kind == "n" else Layout(rng.choice((1, 2, 4)), rng.choice((1, 2)))


NAMES = (
    "compose", "logical_divide", "zipped_divide", "tiled_divide", "logical_product", "zipped_product", "tiled_product",
)  # fmt: skip


def test_forms_by_layout_and_by_mode_are_those_of_pycute() -> None:
    peer = pytest.importorskip("pycute", reason="pycute (nvidia-cutlass) is not installed (extra: peers)")
    rng = random.Random(21)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        a = random_layout(rng)
        tiler = random_tiler(rng, a, True)
        for name in NAMES:
            operand = random_layout(rng) if name == "compose" and rng.random() < 0.5 else tiler
            if "product" in name and any(isinstance(t, int) for t in leaves(operand)):
                continue  # pycute divides by an int instead
            theirs = ask(
                lambda a=a, name=name, operand=operand: getattr(peer, "composition" if name == "compose" else name)(
                    handed(peer, a), handed(peer, operand)
                )
            )
            try:
                ours = getattr(library, name)(a, operand)
            except LayoutError:
                continue
            if theirs is not None and size(ours) == size(theirs) and values(ours) == values(theirs):
                assert form(ours) == form(theirs), (name, a, operand)
                seen[name] += 1
        for name, extra in (
            ("coalesce", ()),
            ("coalesce", (tuple([1] * len(a)),)),
            ("filter", ()),
            ("filter", ((1,),)),
        ):
            theirs = ask(lambda a=a, name=name, extra=extra: getattr(peer, name)(handed(peer, a), *extra))
            assert theirs is not None
            assert form(getattr(library, name)(a, *extra)) == form(theirs), (name, a)
    assert min(seen[name] for name in NAMES) > CASES // 8


def test_forms_of_products_and_nullspaces_are_those_of_tensor_layouts() -> None:
    peer = pytest.importorskip("tensor_layouts", reason="tensor-layouts is not installed (extra: peers)")
    rng = random.Random(22)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        a, b = random_layout(rng, gaps=False), random_layout(rng, modes=2)
        for name in ("blocked_product", "raked_product", "flat_product", "max_common_layout"):
            if name == "blocked_product" and len(b) != len(a):
                continue  # it does not pair what is missing with a mode of 1, as CuTe does
            theirs = ask(lambda a=a, b=b, name=name: getattr(peer, name)(handed(peer, a), handed(peer, b)))
            try:
                ours = getattr(library, name)(a, b)
            except LayoutError:
                continue
            if theirs is not None and size(ours) == size(theirs) and values(ours) == values(theirs):
                assert form(ours) == form(theirs), (name, a, b)
                seen[name] += 1
        theirs = ask(lambda a=a: peer.nullspace(handed(peer, a)))
        if 1 not in leaves(a.shape):
            assert theirs == nullspace(a)
    assert min(seen.values()) > CASES // 8


def test_modes_of_stride_zero_stay_apart_in_a_nullspace() -> None:
    assert nullspace(Layout((2, 2, 3), (3, 0, 0))) == Layout((2, 3), (2, 4))
    assert nullspace(Layout((2, 2), (1, 0))) == Layout(2, 2)


def test_a_profile_keeps_its_tuple() -> None:
    assert coalesce(Layout(4, 6), (1,)) == Layout((4,), (6,))
    assert filter(Layout(((4, 2), (1, 8)), ((0, 1), (3, 2))), (1, 1)) == Layout((2, 8), (1, 2))
    assert filter(Layout(((4, 2), (1, 8)), ((0, 1), (3, 2))), (1,)) == Layout((2, (1, 8)), (1, (3, 2)))
    assert filter(Layout((4, 2), (0, 1)), (None, 1)) == Layout((4, 2), (0, 1))
    swizzled = compose(Swizzle(1, 0, 1), Layout((4, 2), (0, 1)))
    assert filter(swizzled) == compose(Swizzle(1, 0, 1), Layout(2, 1))
    for wrong in ((1, 1, 1), 1.5, (1, True)):
        with pytest.raises(LayoutError):
            filter(Layout((4, 2)), wrong)


def test_orders_are_those_of_make_ordered_layout() -> None:
    # The example in CuTe's layout.hpp: the mode with the smallest entry has stride 1.
    assert ordered_layout((2, 2, 2, 2), (0, 2, 3, 1)) == Layout((2, 2, 2, 2), (1, 4, 8, 2))
    tiles = tile_to_shape(Layout((2, 2), (2, 1)), (4, 6, 2), order=(2, 0, 1))
    assert tiles == Layout(((2, 2), (2, 3), (1, 2)), ((2, 24), (1, 4), (0, 12)))


def test_a_tuple_of_one_tuple_is_reached_by_the_tuple() -> None:
    nested = Layout(((4, 8),), ((8, 1),))
    assert nested((1, 2)) == nested(((1, 2),)) == 10
    assert nested.slice((None, 2)) == nested.slice(((None, 2),)) == Layout(4, 8)
    assert nested.slice_and_offset((1, None)) == (Layout(8, 1), 8)
    assert [value(nested, i) for i in range(3)] == [nested(i) for i in range(3)]
    with pytest.raises(LayoutError):
        nested((1, 2, 3))


def test_modes_added_on_either_side() -> None:
    assert append(Layout(4), Layout(1, 0), rank=3) == Layout((4, 1, 1), (1, 0, 0))
    assert prepend(Layout((4, 2)), Layout(8, 8)) == Layout((8, 4, 2), (8, 1, 4))
