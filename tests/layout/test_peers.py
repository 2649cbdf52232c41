"""Beside pycute and tensor-layouts: the same function wherever they are right, and every difference accounted for.

A difference is accounted for by a reason that is itself checked: the peer's answer is not the function the definition asks
for, or the peer refuses where the definition has an answer. Known divergences, each seen to occur below:

Both peers:

composition    Wrong where modes of B carry into each other inside A, which is not checked: (6,2):(1,7) o (3,2):(2,3). Wrong
               where A must continue past a last mode of extent 1, which is dropped first: (4,1):(1,0) o 8:1, 1:10 o 4:1.
               Refused where a step neither divides a mode of A nor is divided by it, although the values are a layout:
               (4,5):(4,1) o 3:6, (8,4):(1,100) o 6:3. Right: ours, for R(i) == A(B(i)) is the definition.
complement     Of layouts that overlap or do not nest, something that covers nothing or collides: (2,3):(16,1). Right: an
               error, or for a small cotarget the layout that covers it.
right_inverse  Not the largest where modes overlap: 5:4 for (4,5):(4,1), ours has 16 elements. Right: ours.
left_inverse   Wrong or missing where modes do not nest: (3,5):(2,5); an answer where there is none: (4,5):(4,1) is not
               one-to-one. Both right, differently, for offsets that the layout leaves out: any value will do there.
logical_divide Rounds up silently where tiles do not divide. Right: an error.

pycute alone:

composition    Drops coordinates where an extent of B does not split at a mode of A: (2,8):(12,4) o 3:1 has 2. Right: an error.
logical_product  By an int it divides instead. Right: a product.
right_inverse  Stops at a mode of stride 0. Right: skip it.
cosize         Of negative strides: -5 for 4:-2. Right: 7, the span.

tensor-layouts alone:

compose        Reads negative steps as if A were odd, A(-x) == -A(x). Ours: along the last mode, digits rounded down as by
               Python's // and %.
idx2crd        Takes the last digit modulo its extent. Right: the last mode is unbounded (CuTe).
blocked_product  Leaves gaps of the block unused: ((4,2)):((2,7)) for 4:2 by 2:1. Right: ((4,2)):((2,1)).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from layout_definitions import composition_exists, leaves, random_layout, value, values

from stridewright.layout import (
    Layout,
    LayoutError,
    Swizzle,
    blocked_product,
    coalesce,
    complement,
    compose,
    cosize,
    downcast,
    flatten,
    idx2crd,
    left_inverse,
    logical_divide,
    logical_product,
    nullspace,
    raked_product,
    right_inverse,
    size,
    upcast,
    zipped_divide,
)

CASES = 600


def back(peer: Any) -> Layout | None:
    """A peer's layout as ours; None for one that is none (extents of 0)."""
    try:
        return Layout(peer.shape, peer.stride)
    except LayoutError:
        return None


def ask(operation: Callable[[], Any]) -> Layout | None:
    try:
        return back(operation())
    except Exception:
        return None


def same(a: Layout, b: Layout) -> bool:
    return size(a) == size(b) and values(a) == values(b)


@pytest.fixture(params=["pycute", "tensor_layouts"])
def peer(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param, reason=f"{request.param} is not installed (extra: peers)")


def to_peer(peer: Any, layout: Layout) -> Any:
    return peer.Layout(layout.shape, layout.stride)


def compare(
    peer: Any, ours: Callable[[], Layout], theirs: Callable[[], Any], is_right: Callable[[Layout], bool]
) -> str:
    """'same', or which of the two has an answer that the definition accepts."""
    their_layout = ask(theirs)
    try:
        our_layout = ours()
    except LayoutError:
        if their_layout is None:
            return "both refuse"
        assert not is_right(their_layout), f"needlessly refused: {peer.__name__} has {their_layout}"
        return "theirs is wrong, ours refuses"
    assert is_right(our_layout)
    if their_layout is None:
        return "they refuse"
    if same(our_layout, their_layout):
        return "same"
    return "both right" if is_right(their_layout) else "theirs is wrong"


def test_compositions_agree_wherever_the_peer_is_right(peer: Any) -> None:
    call = peer.composition if hasattr(peer, "composition") else peer.compose
    rng = random.Random(1)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        a, b = random_layout(rng), random_layout(rng)

        def is_right(r: Layout, a: Layout = a, b: Layout = b) -> bool:
            return size(r) == size(b) and values(r) == [value(a, value(b, i)) for i in range(size(b))]

        outcome = compare(
            peer, lambda a=a, b=b: compose(a, b), lambda a=a, b=b: call(to_peer(peer, a), to_peer(peer, b)), is_right
        )  # type: ignore[misc]
        if outcome == "they refuse":
            assert composition_exists(a, b)
        seen[outcome] += 1
    assert seen["same"] > CASES // 2
    assert seen["both right"] == 0
    assert seen["theirs is wrong"] + seen["theirs is wrong, ours refuses"] > 0
    assert seen["they refuse"] > 0


def test_complements_agree_wherever_the_peer_is_right(peer: Any) -> None:
    rng = random.Random(2)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        layout, target = random_layout(rng), rng.randint(1, 48)
        moving = [(s, d) for s, d in zip(leaves(layout.shape), leaves(layout.stride), strict=True) if d]
        offsets = [0]
        for s, d in moving:
            offsets = [x + c * d for x in offsets for c in range(s)]

        def is_right(r: Layout, offsets: list[int] = offsets, target: int = target) -> bool:
            numbers = values(r)
            sums = [x + y for x in offsets for y in numbers]
            return numbers == sorted(set(numbers)) and len(set(sums)) == len(sums) and set(range(target)) <= set(sums)

        outcome = compare(
            peer,
            lambda layout=layout, target=target: complement(layout, target),  # type: ignore[misc]
            lambda layout=layout, target=target: peer.complement(to_peer(peer, layout), target),  # type: ignore[misc]
            is_right,
        )
        seen[outcome] += 1
    assert seen["same"] > CASES // 3
    assert seen["theirs is wrong, ours refuses"] > 0
    assert seen["both right"] == 0


@pytest.mark.parametrize("side", ["left", "right"])
def test_inverses_agree_wherever_the_peer_is_right(peer: Any, side: str) -> None:
    rng = random.Random(3)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        layout = random_layout(rng)
        n = size(layout)

        def is_right(r: Layout, layout: Layout = layout, n: int = n) -> bool:
            if side == "left":
                return [value(r, x) for x in values(layout)] == list(range(n))
            return all(0 <= x < n for x in values(r)) and [value(layout, x) for x in values(r)] == list(range(size(r)))

        ours, theirs = (left_inverse, peer.left_inverse) if side == "left" else (right_inverse, peer.right_inverse)
        outcome = compare(
            peer,
            lambda layout=layout, ours=ours: ours(layout),  # type: ignore[misc]
            lambda layout=layout, theirs=theirs: theirs(to_peer(peer, layout)),  # type: ignore[misc]
            is_right,
        )
        if outcome == "both right" and side == "right":
            smaller = back(theirs(to_peer(peer, layout)))
            assert smaller is not None
            assert size(smaller) < size(right_inverse(layout))  # ours is the largest
        seen[outcome] += 1
    assert seen["same"] > CASES // 4


def test_coalesce_flatten_and_cosize_agree(peer: Any) -> None:
    rng = random.Random(4)
    for _ in range(CASES):
        layout = random_layout(rng)
        theirs = back(peer.coalesce(to_peer(peer, layout)))
        assert theirs is not None
        assert coalesce(layout) == theirs or size(layout) == 1
        assert peer.cosize(to_peer(peer, layout)) == cosize(layout)
        if peer.__name__ == "tensor_layouts":
            assert same(back(peer.flatten(to_peer(peer, layout))) or Layout(1), flatten(layout))


def test_divides_and_products_agree_where_tiles_divide(peer: Any) -> None:
    rng = random.Random(5)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        layout, tile = random_layout(rng), rng.choice((1, 2, 3, 4, 6))
        tiler = Layout(tile, rng.choice((1, 1, 2)))
        for ours, name in ((logical_divide, "logical_divide"), (logical_product, "logical_product")):
            theirs = ask(
                lambda layout=layout, tiler=tiler, name=name: getattr(peer, name)(
                    to_peer(peer, layout), to_peer(peer, tiler)
                )
            )  # type: ignore[misc]
            try:
                result = ours(layout, tiler)
            except LayoutError:
                seen[name, "refused"] += 1
                continue
            if theirs is None:
                seen[name, "they refuse"] += 1
            elif same(result, theirs):
                seen[name, "same"] += 1
            else:
                # The peer is wrong by the definition that ours was built from.
                rest = (
                    complement(tiler, size(layout))
                    if name == "logical_divide"
                    else complement(layout, size(layout) * cosize(tiler))
                )
                if name == "logical_divide":
                    want = [
                        value(layout, value(tiler, t) + value(rest, r))
                        for r in range(size(rest))
                        for t in range(size(tiler))
                    ]
                else:
                    want = [
                        value(layout, i) + value(rest, value(tiler, t))
                        for t in range(size(tiler))
                        for i in range(size(layout))
                    ]
                assert values(result) == want
                assert size(theirs) != size(result) or values(theirs) != want
                seen[name, "theirs is wrong"] += 1
    assert seen["logical_divide", "same"] > CASES // 4
    assert seen["logical_product", "same"] > CASES // 4


def test_the_listed_divergences_of_pycute() -> None:
    peer = pytest.importorskip("pycute", reason="pycute (nvidia-cutlass) is not installed (extra: peers)")

    def P(text: str) -> Any:
        return to_peer(peer, Layout.parse(text))

    wrong = back(peer.composition(P("(6,2):(1,7)"), P("(3,2):(2,3)")))
    assert wrong == Layout((3, 2), (2, 3))
    assert value(wrong, 2 + 3) == 7 != value(Layout((6, 2), (1, 7)), 2 * 2 + 3) == 8
    assert back(peer.complement(P("(4,2):(1,2)"), 16)) is None
    assert back(peer.logical_product(P("(2,2):(4,1)"), 6)) != logical_product(Layout((2, 2), (4, 1)), 6)
    assert size(back(peer.right_inverse(P("(3,4):(1,0)"))) or Layout(1)) < 3
    assert (
        size(back(peer.right_inverse(P("(4,4):(1,2)"))) or Layout(1))
        == 4
        < size(right_inverse(Layout((4, 4), (1, 2))))
        == 8
    )
    assert peer.cosize(P("4:-2")) == -5


def test_the_listed_divergences_of_tensor_layouts() -> None:
    peer = pytest.importorskip("tensor_layouts", reason="tensor-layouts is not installed (extra: peers)")

    def P(text: str) -> Any:
        return to_peer(peer, Layout.parse(text))

    assert peer.idx2crd(13, (4, 3)) == (1, 0) != idx2crd(13, (4, 3))
    assert back(peer.blocked_product(P("4:2"), P("2:1"))) == Layout(((4, 2),), ((2, 7),))
    assert blocked_product(Layout(4, 2), Layout(2)) == Layout(((4, 2),), ((2, 1),))
    assert back(peer.compose(P("(4,8):(8,1)"), P("2:-1"))) == Layout(2, -8)
    assert compose(Layout((4, 8), (8, 1)), Layout(2, -1)) == Layout(2, 3 * 8 - 1)


def test_products_casts_and_nullspaces_agree_with_tensor_layouts() -> None:
    peer = pytest.importorskip("tensor_layouts", reason="tensor-layouts is not installed (extra: peers)")
    rng = random.Random(6)
    for _ in range(CASES):
        block, tiler = random_layout(rng, gaps=False), random_layout(rng, modes=2)
        for ours, theirs in ((blocked_product, peer.blocked_product), (raked_product, peer.raked_product)):
            compact = sorted(values(block)) == list(range(size(block)))
            if compact:
                theirs_layout = ask(
                    lambda theirs=theirs, block=block, tiler=tiler: theirs(to_peer(peer, block), to_peer(peer, tiler))
                )  # type: ignore[misc]
                try:
                    result = ours(block, tiler)
                except LayoutError:
                    continue
                assert theirs_layout is None or same(result, theirs_layout)
        n = rng.choice((2, 4))
        for ours_cast, theirs_cast in ((upcast, peer.upcast), (downcast, peer.downcast)):
            theirs_layout = ask(lambda theirs_cast=theirs_cast, block=block, n=n: theirs_cast(to_peer(peer, block), n))  # type: ignore[misc]
            try:
                result = ours_cast(block, n)
            except LayoutError:
                continue
            assert theirs_layout is None or same(result, theirs_layout), (block, n, result, theirs_layout)
        theirs_layout = ask(lambda block=block: peer.nullspace(to_peer(peer, block)))  # type: ignore[misc]
        assert theirs_layout is not None
        assert same(nullspace(block), theirs_layout)


def test_swizzles_and_zipped_divides_agree(peer: Any) -> None:
    for b, m, s in [(3, 4, 3), (2, 0, 2), (1, 3, 3), (2, 1, -3), (0, 3, 3)]:
        theirs = peer.Swizzle(b, m, s)
        assert [theirs(i) for i in range(4096)] == [Swizzle(b, m, s)(i) for i in range(4096)]
    layout = Layout((12, 32), (1, 12))
    assert back(peer.zipped_divide(to_peer(peer, layout), (4, 8))) == zipped_divide(layout, (4, 8))
