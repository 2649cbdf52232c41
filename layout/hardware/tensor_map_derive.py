"""The tensor map that copies a tile of a global layout into a shared-memory layout, derived from the two.

The tile's modes pair with the tensor's. Every mode is cut where either layout cuts it, into pieces with one stride in
global and one in shared memory; pieces that continue each other in both are joined again, and cut where one exceeds a
box's 256 elements or a swizzled row its span; in the order of their shared
strides the pieces are the dimensions of the box. So a tile may need fewer or more dimensions than the tensor has
modes. Where no map exists the error says which piece is in the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..algebra import coalesce, flatten, size
from ..basis import E
from ..core import Layout
from ..swizzle import SwizzledLayout
from .dtypes import data_type
from .errors import HardwareError
from .swizzle_modes import mode_of_parameters, swizzle_mode
from .tensor_map import TensorMap
from .tensor_map_rules import CHUNK, MAXIMUM_BOX, MAXIMUM_RANK


@dataclass(frozen=True)
class DerivedMap:
    """A derived map. ``tensor_map``; ``coordinates``: from an element's coordinate in the tensor (mode by mode) to the
    coordinates of the map, as multiples of basis vectors: ``64 * E(0) + 3 * E(1)`` is (64, 3, 0, ..).
    """

    tensor_map: TensorMap
    coordinates: Layout

    def coordinate(self, *position: int) -> tuple[int, ...]:
        """The map's coordinates of the tensor's element at ``position``, innermost first.

        >>> derived = derive_tensor_map(Layout((128, 256), (256, 1)), Layout((64, 64), (64, 1)), "bf16")
        >>> derived.coordinate(64, 128)
        (128, 64)
        """
        place = self.coordinates(*position)
        values = [0] * self.tensor_map.rank
        if isinstance(place, E):
            for path, factor in place.terms:
                values[path[0]] += int(factor)
        elif place:
            raise HardwareError(f"position {position} has no coordinate: {place}")
        return tuple(values)


@dataclass(frozen=True)
class _Piece:
    """A run of one tensor mode: ``extent`` elements of the tile, ``total`` of the tensor (the same unless it is the
    mode's last)."""

    mode: int
    extent: int
    total: int
    shared: int
    stride: int


def _leaves(layout: Layout, most: int | None = None) -> list[tuple[int, int]]:
    """(extent, stride) of every run, those that continue each other joined unless one would exceed ``most``."""
    flat = coalesce(layout)
    if most is not None and max(flat.shape if isinstance(flat.shape, tuple) else (flat.shape,)) > most:
        flat = flatten(layout)
    if not isinstance(flat.shape, tuple):
        return [(flat.shape, flat.stride)]
    return list(zip(flat.shape, flat.stride, strict=True))


def _pieces(mode: int, tensor: Layout, tile: Layout) -> list[_Piece]:
    """Cut one mode where either layout cuts it."""
    cuts = [(s, d) for s, d in _leaves(tensor) if s > 1] or [(1, 0)]
    shared = [(s, d) for s, d in _leaves(tile, MAXIMUM_BOX) if s > 1]
    pieces: list[_Piece] = []
    (total, stride), cuts = cuts[0], cuts[1:]
    for number, (extent, offset) in enumerate(shared):
        last = number == len(shared) - 1
        while True:
            if total == 1 and cuts:
                (total, stride), cuts = cuts[0], cuts[1:]
            if last and not cuts:
                pieces.append(_Piece(mode, extent, total, offset, stride))
                return pieces
            if extent < total:
                if last:
                    if total % extent:
                        raise HardwareError(
                            f"mode {mode}: the tensor breaks after a run of {total} elements, which tiles of {extent} straddle;"
                            f" take a divisor of {total}"
                        )
                    pieces.append(_Piece(mode, extent, total, offset, stride))
                    pieces += [_Piece(mode, 1, s, 0, d) for s, d in cuts]
                    return pieces
                if total % extent:
                    raise HardwareError(
                        f"mode {mode}: the tile breaks after {extent} elements and {extent} does not divide the tensor's"
                        f" {total}, so the end of the tensor could not be seen; make the tile's mode continuous in shared"
                        f" memory, copy it in several boxes, or pad to {-(-total // extent) * extent}"
                    )
                pieces.append(_Piece(mode, extent, extent, offset, stride))
                total, stride = total // extent, stride * extent
                break
            if extent % total and total > 1:
                raise HardwareError(
                    f"mode {mode}: the tensor breaks after {total} elements, the tile after {extent}; neither divides the other"
                )
            pieces.append(_Piece(mode, total, total, offset, stride))
            extent, offset, total = extent // total, offset * total, 1
            if extent == 1:
                if last:
                    pieces += [_Piece(mode, 1, s, 0, d) for s, d in cuts]
                    return pieces
                break
    return [_Piece(mode, 1, total, 0, stride)] + [_Piece(mode, 1, s, 0, d) for s, d in cuts]


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """Join neighbours of one mode that continue each other in both memories, unless the box would exceed 256."""
    result: list[_Piece] = []
    for piece in pieces:
        if result:
            before = result[-1]
            if (
                before.mode == piece.mode
                and before.extent == before.total
                and piece.stride == before.stride * before.total
                and (piece.extent == 1 or piece.shared == before.shared * before.extent)
                and before.extent * piece.extent <= MAXIMUM_BOX
            ):
                merged = (before.extent * piece.extent, before.total * piece.total)
                result[-1] = _Piece(piece.mode, *merged, before.shared, before.stride)
                continue
        result.append(piece)
    return result


def _fitted(piece: _Piece, span: int, bits: int) -> list[_Piece]:
    """The piece cut into ones that a box can hold: at most 256 elements, a swizzled row its ``span`` of elements.

    What cannot be cut stays whole, for the map's problems to name.
    """
    row = piece.shared == 1 and piece.stride == 1
    limit = min(span, MAXIMUM_BOX) if row and span else MAXIMUM_BOX
    if piece.extent <= limit:
        return [piece]
    # The rest must begin where the part ends in both memories and the tensor must end with a whole part; rows of a
    # swizzled box are a span apart however short they are, so there only the span itself will do.
    for part in range(limit, limit - 1 if row and span else 1, -1):
        if piece.extent % part == 0 and piece.total % part == 0 and not (row and part * bits % (8 * CHUNK)):
            rest = _Piece(
                piece.mode, piece.extent // part, piece.total // part, piece.shared * part, piece.stride * part
            )
            return [_Piece(piece.mode, part, part, piece.shared, piece.stride), *_fitted(rest, span, bits)]
    return [piece]


def derive_tensor_map(
    tensor: Layout,
    tile: Layout | SwizzledLayout,
    dtype: str,
    arch: str = "sm_90a",
    l2_promotion: str = "128B",
    oob_fill: str = "zero",
) -> DerivedMap:
    """The map that copies a tile of ``tensor`` so that it lies in shared memory as ``tile`` says.

    The tile may start at any multiple of its extents (at any coordinate, where neither layout breaks its modes).

    ``tensor``: coordinates -> element offset in global memory; ``tile``: the same modes, of the tile's size -> element
    offset in shared memory, swizzled or not. Raises HardwareError saying which piece is in the way, or with all
    problems of the map.

    >>> derived = derive_tensor_map(Layout((4096, 4096), (4096, 1)), Layout.parse("((8,16),(64,1)):((64,512),(1,0))"), "bf16")
    >>> derived.tensor_map.box, derived.tensor_map.strides_bytes, print(derived.coordinates)
    (4096,4096):(1@1,1@0)
    ((64, 128), (8192,), None)
    """
    kind = data_type(dtype)
    bits = kind.smem_bits
    inner, mode = tile, swizzle_mode("none")
    if isinstance(tile, SwizzledLayout):
        mode = mode_of_parameters(tile.swizzle.bits, tile.swizzle.base, tile.swizzle.shift, bits)
        if tile.offset:
            raise HardwareError(
                f"tile {tile} starts at {tile.offset}: a box starts where it is put; add it to the address"
            )
        inner = tile.layout
    if not isinstance(inner, Layout) or not isinstance(tensor, Layout):
        raise HardwareError(f"tensor and tile must be layouts, not {tensor!r} and {tile!r}")
    if len(tensor) != len(inner):
        raise HardwareError(f"tensor {tensor} has {len(tensor)} modes and tile {tile} has {len(inner)}: they must pair")
    for i in range(len(tensor)):
        if int(size(inner[i])) > 1 and 0 in [d for s, d in _leaves(inner[i]) if s > 1]:
            raise HardwareError(f"tile {tile}, mode {i}: a stride of 0 would put several elements at one place")
    span = mode.span * 8 // bits
    pieces = [
        part
        for i in range(len(tensor))
        for piece in _joined(_pieces(i, tensor[i], inner[i]))
        for part in _fitted(piece, span, bits)
    ]
    order = sorted(range(len(pieces)), key=lambda n: (pieces[n].extent == 1, pieces[n].shared, pieces[n].stride))
    if pieces[order[0]].extent == 1:
        order.sort(key=lambda n: pieces[n].stride != 1)
    dims = [pieces[n] for n in order]
    _check_order(dims, tile, span)
    if len(dims) > MAXIMUM_RANK:
        cut = ", ".join(f"{p.extent}:{p.shared}" for p in dims)
        raise HardwareError(
            f"the tile needs {len(dims)} dimensions ({cut}), a tensor map has at most {MAXIMUM_RANK}; copy it in several boxes"
        )
    tensor_map = TensorMap(
        dtype,
        tuple(p.total for p in dims),
        tuple(_stride_bytes(p, kind.bits) for p in dims[1:]),
        tuple(p.extent for p in dims),
        mode.name,
        l2_promotion=l2_promotion,
        oob_fill=oob_fill,
        arch=arch,
    ).check()
    return DerivedMap(tensor_map, _coordinates(pieces, order, len(tensor)))


def _stride_bytes(piece: _Piece, bits: int) -> int:
    if piece.stride * bits % 8:
        raise HardwareError(f"a stride of {piece.stride} elements of {bits} bits is no whole number of bytes")
    return piece.stride * bits // 8


def _check_order(dims: list[_Piece], tile: Any, span: int) -> None:
    first = dims[0]
    if first.stride != 1 and first.total > 1:
        raise HardwareError(
            f"the tile's innermost run ({first.extent} elements of mode {first.mode}) has stride {first.stride} in global memory"
            f" and {first.shared} in shared memory: TMA does not transpose; the innermost dimension must have stride 1 in both"
        )
    if first.extent > 1 and first.shared != 1:
        raise HardwareError(
            f"tile {tile}: its innermost stride is {first.shared}, a box row is contiguous in shared memory"
        )
    expected = max(first.extent, span)
    for piece in dims[1:]:
        if piece.extent > 1:
            if piece.shared != expected:
                raise HardwareError(
                    f"tile {tile}: {piece.extent} elements of mode {piece.mode} lie {piece.shared} elements apart in shared memory;"
                    f" in a box they lie {expected} apart"
                )
            expected *= piece.extent


def _coordinates(pieces: list[_Piece], order: list[int], modes: int) -> Layout:
    place = {piece: dim for dim, piece in enumerate(order)}
    shapes: list[Any] = []
    strides: list[Any] = []
    for mode in range(modes):
        numbers = [n for n, piece in enumerate(pieces) if piece.mode == mode]
        shape = tuple(pieces[n].total for n in numbers)
        stride = tuple(1 * E(place[n]) for n in numbers)
        shapes.append(shape if len(shape) > 1 else shape[0])
        strides.append(stride if len(stride) > 1 else stride[0])
    return Layout(tuple(shapes), tuple(strides))
