"""The Layout: a function from coordinates to offsets, written Shape:Stride.

This module knows how a layout is built, written, read, sliced and evaluated. Operations that make layouts from layouts live
in their own modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .basis import E
from .errors import LayoutError
from .tuples import IntTuple, compact_strides, flatten_tuple, product, show, to_int, unwrap


def _is_symbolic(t: Any) -> bool:
    return any(map(_is_symbolic, t)) if type(t) is tuple else hasattr(t, "free_symbols")


def _clean_symbol(value: Any, extent: bool) -> Any:
    if value.is_Integer:
        return _clean_shape(int(value)) if extent else int(value)
    if value.is_integer is False or (value.is_number and not value.is_integer):
        raise LayoutError(f"{value} is not an integer")
    if extent and value.is_positive is False:
        raise LayoutError(f"an extent is at least 1, which {value} is not")
    return value


def _clean_shape(shape: Any) -> IntTuple:
    if type(shape) is int:
        if shape < 1:
            raise LayoutError(f"an extent is at least 1, not {shape}")
        return shape
    if isinstance(shape, (tuple, list)):
        return tuple([_clean_shape(element) for element in shape])
    if isinstance(shape, Layout):
        raise LayoutError(f"a shape is an int or a nested tuple of ints, not the layout {shape}")
    if hasattr(shape, "free_symbols"):
        return _clean_symbol(shape, True)
    return _clean_shape(to_int(shape, "an extent"))


def _clean_stride(stride: Any) -> IntTuple:
    if type(stride) is int or type(stride) is E:
        return stride
    if isinstance(stride, (tuple, list)):
        return tuple([_clean_stride(element) for element in stride])
    if hasattr(stride, "free_symbols"):
        return _clean_symbol(stride, False)
    return to_int(stride, "a stride")


def _is_clean(shape: tuple[Any, ...], stride: tuple[Any, ...]) -> bool:
    """Whether two tuples are a shape and its stride as they are: plain ints and tuples of one form, extents at least 1."""
    if len(shape) != len(stride):
        return False
    for s, d in zip(shape, stride):  # noqa: B905 - checked above, and this loop is what building a layout costs
        if type(s) is int:
            if s < 1 or type(d) is not int:
                return False
        elif type(s) is not tuple or type(d) is not tuple or not _is_clean(s, d):
            return False
    return True


def _same_form(shape: IntTuple, stride: IntTuple) -> bool:
    if type(shape) is tuple:
        return type(stride) is tuple and len(shape) == len(stride) and all(map(_same_form, shape, stride))
    return type(stride) is not tuple


class Layout:
    """A function from coordinates to offsets: the inner product of a coordinate with the strides.

    `shape` and `stride` are ints or nested tuples of one form. Extents are at least 1; strides may be negative, zero, or basis
    strides (`E`). Without `stride` the layout is column-major and compact. An index stands for the coordinate it has when
    coordinates are counted colexicographically (leftmost fastest); indices past the end continue along the last mode.

    Immutable, hashable; equal when shape and stride are equal. Raises LayoutError for anything else than such tuples.

    >>> l = Layout((4, 8), (8, 1))
    >>> l(5), l(1, 2), l[0], str(l)
    (9, 10, Layout(4, 8), '(4,8):(8,1)')
    >>> Layout((4, (2, 3)))
    Layout((4, (2, 3)), (1, (4, 8)))
    """

    __slots__ = ("_flat", "_hash", "_steps", "shape", "stride")
    shape: IntTuple
    stride: IntTuple
    _flat: tuple[tuple[Any, ...], tuple[Any, ...]]
    _hash: int
    _steps: Any

    def __init__(self, shape: Any, stride: Any = None) -> None:
        try:
            if type(shape) is tuple and type(stride) is tuple and _is_clean(shape, stride):
                _set_shape(self, shape)
                _set_stride(self, stride)
                return
            shape = _clean_shape(shape)
            if stride is None:
                stride = compact_strides(shape)
            else:
                given, stride = stride, _clean_stride(stride)
                if not _same_form(shape, stride):
                    raise LayoutError(f"the stride {given} does not have the form of the shape {shape}")
        except RecursionError:
            raise LayoutError("the shape or stride is nested too deeply") from None
        _set_shape(self, shape)
        _set_stride(self, stride)
        if (type(shape) is not int or type(stride) is not int) and (_is_symbolic(shape) or _is_symbolic(stride)):
            object.__setattr__(self, "__class__", SymbolicLayout)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a layout is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a layout is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Layout, (self.shape, self.stride))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return bool(self.shape == other.shape and self.stride == other.stride)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash((self.shape, self.stride))
            _set_hash(self, value)
            return value

    def __repr__(self) -> str:
        return f"Layout({self.shape!r}, {self.stride!r})"

    def __str__(self) -> str:
        return f"{show(self.shape)}:{show(self.stride)}"

    @staticmethod
    def parse(text: str) -> Layout:
        """The layout written as Shape:Stride; a shape alone is column-major. Raises LayoutError for any other text.

        >>> Layout.parse("((8,16),(64,1)):((64,512),(1,0))")
        Layout(((8, 16), (64, 1)), ((64, 512), (1, 0)))
        >>> Layout.parse("4:2@0").stride
        2 * E(0)
        """
        from .parsing import parse

        return parse(text)

    def __len__(self) -> int:
        """The rank: the number of modes."""
        return len(self.shape) if type(self.shape) is tuple else 1

    def __iter__(self) -> Iterator[Layout]:
        if type(self.shape) is not tuple:
            return iter((self,))
        return map(make, self.shape, self.stride)

    def __getitem__(self, mode: Any) -> Layout:
        """Mode `mode` as a layout; a tuple goes down the hierarchy, a slice keeps several modes.

        >>> l = Layout((4, (2, 3)))
        >>> l[1], l[1, 0], l[0:1]
        (Layout((2, 3), (4, 8)), Layout(2, 4), Layout((4,), (1,)))
        """
        if type(mode) is tuple:
            result = self
            for step in mode:
                result = result[step]
            return result
        if type(mode) is slice:
            if type(self.shape) is not tuple:
                raise LayoutError(f"{self} has a single mode and cannot be sliced by {mode}")
            return make(self.shape[mode], self.stride[mode])
        i = to_int(mode, "a mode's number")
        rank = len(self)
        if not -rank <= i < rank:
            raise LayoutError(f"mode {i} does not exist: {self} has rank {rank}")
        if type(self.shape) is not tuple:
            return self
        return make(self.shape[i], self.stride[i])

    def __call__(self, *coordinate: Any) -> Any:
        """The offset at an index, at a coordinate (one argument per mode), or at every index of an integer array.

        >>> l = Layout((4, 8), (8, 1))
        >>> l(5), l(1, 1), l((1, 1))
        (9, 9, 9)
        >>> import numpy
        >>> l(numpy.arange(3))
        array([ 0,  8, 16])
        """
        if len(coordinate) == 1:
            c = coordinate[0]
            if type(c) is int:
                shape, stride = self.flat
                offset = 0
                if not shape:
                    return 0
                for s, d in zip(shape[:-1], stride, strict=False):
                    c, digit = divmod(c, s)
                    offset += digit * d
                return offset + c * stride[-1]
            if type(c) is not tuple:
                if hasattr(c, "__array__") and getattr(c, "ndim", None):
                    return evaluate(self, c)
                return self(to_int(c, "an index"))
        else:
            c = coordinate
        if type(self.shape) is not tuple:
            if len(c) == 1 and type(c[0]) is not tuple:
                return self(*c)
            raise LayoutError(f"the coordinate {c} does not fit {self}, which has one mode")
        return offset_of(_whole(c, self.shape), self.shape, self.stride)

    def slice(self, *coordinate: Any) -> Layout:
        """The layout of the modes marked None, the others being fixed; one mode left stands alone.

        The offset of the fixed part is ``slice_and_offset``'s second result.

        >>> Layout((4, 8), (8, 1)).slice(None, 3)
        Layout(4, 8)
        >>> Layout((4, (2, 3))).slice(1, (None, 2))
        Layout(2, 4)
        """
        return self.slice_and_offset(*coordinate)[0]

    def slice_and_offset(self, *coordinate: Any) -> tuple[Layout, Any]:
        """What `slice` returns, and the offset at which it starts.

        >>> Layout((4, 8), (8, 1)).slice_and_offset(None, 3)
        (Layout(4, 8), 3)
        """
        c: Any = _whole(coordinate[0] if len(coordinate) == 1 else coordinate, self.shape)
        kept, offset = _slice(c, self.shape, self.stride, self)
        if not kept:
            return make((), ()), offset
        return make(unwrap([s for s, _ in kept]), unwrap([d for _, d in kept])), offset

    @property
    def flat(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The leaves of the shape and of the stride.

        >>> Layout((4, (2, 3))).flat
        ((4, 2, 3), (1, 4, 8))
        """
        try:
            return self._flat
        except AttributeError:
            value = (flatten_tuple(self.shape), flatten_tuple(self.stride))
            _set_flat(self, value)
            return value


class SymbolicLayout(Layout):
    """A layout with symbolic (sympy) extents or strides: what Layout(...) makes of such arguments.

    Sizes are positive integers; `dimension` declares one with a divisor. Operations hold for all values of the sizes, or say
    which fact they miss. Evaluate it at coordinates, or put numbers in with `subs`.

    >>> from stridewright.layout import dimension
    >>> N = dimension("N", multiple_of=64)
    >>> l = Layout((N, 8), (8, 1))
    >>> l(3, 2), l[1], l.subs({N: 64})
    (26, Layout(8, 1), Layout((64, 8), (8, 1)))
    """

    __slots__ = ()

    def __call__(self, *coordinate: Any) -> Any:
        """The offset at a coordinate, as an expression; indices need extents that are numbers, but for the last."""
        c = coordinate[0] if len(coordinate) == 1 else coordinate
        return _symbolic_offset(c, self.shape, self.stride, self)

    def __iter__(self) -> Iterator[Layout]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, mode: Any) -> Layout:
        part = super().__getitem__(mode)
        return Layout(part.shape, part.stride)

    def slice_and_offset(self, *coordinate: Any) -> tuple[Layout, Any]:
        """What `slice` returns, and the offset at which it starts.

        >>> from stridewright.layout import dimension
        >>> Layout((dimension("N"), 8), (8, 1)).slice_and_offset(None, 3)
        (Layout(N, 8), 3)
        """
        part, offset = super().slice_and_offset(*coordinate)
        return Layout(part.shape, part.stride), offset

    def subs(self, values: Any) -> Layout:
        """The layout with numbers in place of sizes, given as a mapping.

        >>> from stridewright.layout import dimension
        >>> N = dimension("N")
        >>> Layout((4, N)).subs({N: 3})
        Layout((4, 3), (1, 4))
        """
        from .symbolic import substitute

        return substitute(self, values)


def _symbolic_offset(c: Any, shape: IntTuple, stride: IntTuple, layout: Layout) -> Any:
    if type(c) is tuple:
        if type(shape) is not tuple or len(c) != len(shape):
            raise LayoutError(f"the coordinate {c} does not fit the shape {show(shape)}")
        return sum([_symbolic_offset(x, s, d, layout) for x, s, d in zip(c, shape, stride, strict=True)])
    if not hasattr(c, "free_symbols"):
        c = to_int(c, "a coordinate")
    if type(shape) is not tuple:
        return c * stride
    total: Any = 0
    for s, d in zip(shape[:-1], stride, strict=False):
        extent = product(s)
        if type(extent) is not int or type(c) is not int:
            raise LayoutError(f"the index {c} has no digits in {layout}: put numbers in with subs first")
        c, digit = divmod(c, extent)
        total = total + _symbolic_offset(digit, s, d, layout)
    return total + _symbolic_offset(c, shape[-1], stride[-1], layout)


# The slots' own setters, which the class itself refuses to outside users.
_slots = vars(Layout)
_set_shape = _slots["shape"].__set__
_set_stride = _slots["stride"].__set__
_set_flat = _slots["_flat"].__set__
_set_hash = _slots["_hash"].__set__
_set_steps = _slots["_steps"].__set__
_new = object.__new__


def make(shape: IntTuple, stride: IntTuple) -> Layout:
    """A layout from parts already known to be clean: the way operations build results without checking them again.

    >>> make((4, 8), (8, 1))
    Layout((4, 8), (8, 1))
    """
    result: Layout = _new(Layout)
    _set_shape(result, shape)
    _set_stride(result, stride)
    return result


def retype(result: Layout, like: Layout) -> Layout:
    """`result` as a layout of the kind of `like`, numeric or symbolic, as far as its parts ask for it.

    >>> retype(Layout(4), Layout(8))
    Layout(4, 1)
    """
    return result if type(like) is Layout else Layout(result.shape, result.stride)


def numeric(value: Any, operation: str) -> Layout:
    """`value` as a layout of numbers: LayoutError for symbolic sizes.

    >>> numeric(4, "nullspace")
    Layout(4, 1)
    """
    layout = as_layout(value)
    if type(layout) is not Layout:
        raise LayoutError(f"{operation}({layout}): symbolic sizes are not decided here; put numbers in with subs first")
    return layout


def as_layout(value: Any, what: str = "an operand") -> Layout:
    """`value` as a layout: a layout itself, or the column-major layout of an int or a shape.

    >>> as_layout(4), as_layout((2, 3))
    (Layout(4, 1), Layout((2, 3), (1, 2)))
    """
    if isinstance(value, Layout):
        return value
    if type(value) is int or isinstance(value, (tuple, list)) or hasattr(value, "free_symbols"):
        return Layout(value)
    if hasattr(value, "swizzle"):
        raise LayoutError(f"{value} is swizzled, and this takes plain layouts: the one inside is its .layout")
    return Layout(to_int(value, what + " that is not a layout"))


def offset_of(coordinate: Any, shape: IntTuple, stride: IntTuple) -> Any:
    """The offset of a coordinate of `shape`, by its inner product with `stride`.

    >>> offset_of((1, 5), (4, (2, 3)), (1, (4, 8)))
    21
    """
    if type(coordinate) is tuple:
        if type(shape) is not tuple or len(coordinate) != len(shape):
            raise LayoutError(f"the coordinate {coordinate} does not fit the shape {show(shape)}")
        offset: Any = 0
        for c, s, d in zip(coordinate, shape, stride, strict=True):
            offset += c * d if type(c) is int and type(s) is not tuple else offset_of(c, s, d)
        return offset
    if type(coordinate) is not int:
        coordinate = to_int(coordinate, "a coordinate")
    if type(shape) is tuple:
        offset = 0
        if not shape:
            if coordinate:
                raise LayoutError(f"the coordinate {coordinate} does not fit the empty shape ()")
            return 0
        for s, d in zip(shape[:-1], stride, strict=False):
            extent = product(s)
            coordinate, digit = divmod(coordinate, extent)
            offset += digit * d if type(s) is not tuple else offset_of(digit, s, d)
        return offset + offset_of(coordinate, shape[-1], stride[-1])
    return coordinate * stride


def _whole(c: Any, shape: IntTuple) -> Any:
    """`c`, or (c,) where it can only be meant for the one mode of `shape`: l((1, 2)) of a layout of shape ((4, 8),)."""
    return (c,) if type(c) is tuple and type(shape) is tuple and len(shape) == 1 != len(c) else c


def _slice(c: Any, shape: IntTuple, stride: IntTuple, layout: Layout) -> tuple[list[tuple[Any, Any]], Any]:
    if c is None:
        return [(shape, stride)], 0
    if type(c) is tuple and type(shape) is tuple:
        if len(c) != len(shape):
            raise LayoutError(f"the coordinate {c} does not fit the shape {show(shape)} inside {layout}")
        kept: list[tuple[Any, Any]] = []
        offset: Any = 0
        for element, s, d in zip(c, shape, stride, strict=True):
            part, step = _slice(element, s, d, layout)
            offset += step
            if part:
                kept.append((unwrap([p for p, _ in part]), unwrap([q for _, q in part])))
        return kept, offset
    return [], offset_of(c, shape, stride)


_CHUNK = 8192  # indices at a time: the intermediate arrays stay in cache, and their memory is reused


def evaluate(layout: Layout, indices: Any, offset: int = 0, swizzle: Any = None) -> Any:
    """The offsets at every index of an integer array, in an int64 array of the same shape; with `offset` added, then swizzled.

    Raises LayoutError where an offset could pass 2**63, for numpy would wrap around silently.

    >>> import numpy
    >>> evaluate(Layout((2, 2), (1, 10)), numpy.arange(4))
    array([ 0,  1, 10, 11])
    """
    import numpy as np

    array = np.asarray(indices)
    if array.dtype.kind not in "iu":
        raise LayoutError(f"an array of indices holds integers, not {array.dtype}")
    shape, stride = layout.flat
    if any(type(d) is not int for d in stride):
        raise LayoutError(f"{layout} has strides that are not numbers: evaluate it one coordinate at a time")
    out = np.empty(array.shape, np.int64)
    if array.size == 0:
        return out
    low, high = int(array.min()), int(array.max())
    rest = max(abs(low), abs(high)) + 1
    bound = abs(offset)
    for i, d in enumerate(stride):
        bound += (rest if i == len(shape) - 1 else min(rest, shape[i])) * abs(d)
        rest = rest // shape[i] + 1
    widest = max(bound, high, -low)
    if swizzle is not None and swizzle.bits:
        widest = max(widest << max(0, -swizzle.shift), swizzle.source_mask)
    if widest >= 2**63:
        raise LayoutError(f"offsets of {layout} may pass 2**63 here: evaluate it one index at a time")
    plan = _digits(shape, stride, low, high)
    source, target = array.reshape(-1), out.reshape(-1)
    for start in range(0, len(source), _CHUNK):
        left = source[start : start + _CHUNK].astype(np.int64)
        result = target[start : start + _CHUNK]
        result.fill(offset)
        for s, d in plan:
            if s == 0:
                digit = left
            elif s & (s - 1) == 0:
                digit = left & (s - 1)
                left >>= s.bit_length() - 1
            else:
                left, digit = np.divmod(left, s)
            if d:
                if d != 1:
                    digit *= d
                result += digit
        if swizzle is not None and swizzle.bits:
            read = result & swizzle.source_mask
            if swizzle.shift > 0:
                read >>= swizzle.shift
            else:
                read <<= -swizzle.shift
            result ^= read
    return out


def _digits(shape: tuple[int, ...], stride: tuple[int, ...], low: int, high: int) -> list[tuple[int, int]]:
    """(extent, stride) of the digits that indices in low .. high have; extent 0 for the last, which takes all that is left."""
    plan = []
    for i, (s, d) in enumerate(zip(shape, stride, strict=True)):
        if i == len(shape) - 1 or (low >= 0 and high < s):
            plan.append((0, d))
            break
        if s > 1:
            plan.append((s, d))
            low, high = low // s, high // s
    return plan
