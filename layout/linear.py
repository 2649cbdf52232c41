"""Maps that are linear over F2: every output bit is an XOR of input bits.

Layouts of power-of-two extents whose modes do not carry into each other are such maps, and so are swizzles. Questions that
would need a walk over all inputs are then questions of rank: a map is one-to-one when its rank is its number of input bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .core import Layout
from .errors import LayoutError
from .swizzle import Swizzle, SwizzledLayout
from .tuples import to_int


@dataclass(frozen=True)
class Proof:
    """A claim about a linear map, whether it holds, and the elimination that shows it. True when the claim holds.

    >>> proof = LinearLayout([1, 3]).prove_injective()
    >>> bool(proof)
    True
    >>> print(proof)
    claim: different inputs have different outputs, on 2 input bits
      bit 0 -> 0b1, keeps 0b1: pivot at output bit 0
      bit 1 -> 0b11, reduced to 0b10: pivot at output bit 1
    rank 2 of 2 input bits: holds
    """

    claim: str
    holds: bool
    steps: tuple[str, ...]
    conclusion: str

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return "\n".join([f"claim: {self.claim}", *["  " + step for step in self.steps], self.conclusion])


def eliminate(vectors: Iterable[int]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Gauss elimination of bit vectors: (pivot bit, reduced vector, combination) for each independent one, and the
    combinations (bit sets of vector numbers) that vanish.

    >>> eliminate([1, 3, 2])
    ([(0, 1, 1), (1, 2, 3)], [7])
    """
    pivots: list[tuple[int, int, int]] = []
    kernel = []
    for j, vector in enumerate(vectors):
        combination = 1 << j
        for pivot, reduced, how in pivots:
            if vector >> pivot & 1:
                vector ^= reduced
                combination ^= how
        if vector:
            pivot = vector.bit_length() - 1
            # Keep the older vectors free of the new pivot, so that each pivot bit stands in one vector only.
            pivots = [(p, r ^ vector, h ^ combination) if r >> pivot & 1 else (p, r, h) for p, r, h in pivots]
            pivots.append((pivot, vector, combination))
        else:
            kernel.append(combination)
    return pivots, kernel


class LinearLayout:
    """A map of bits, ``l(x) = constant ^ bases[0] x_0 ^ bases[1] x_1 ^ ...`` for the bits x_j of x.

    `bases` are the outputs of the single input bits, `outputs` the number of output bits (as many as are used, if left out),
    `constant` the output for 0. Immutable; equal when they are the same function.

    >>> l = LinearLayout([1, 2, 4 ^ 1])
    >>> [l(x) for x in range(8)], l.rank
    ([0, 1, 2, 3, 5, 4, 7, 6], 3)
    """

    __slots__ = ("bases", "constant", "outputs")
    bases: tuple[int, ...]
    constant: int
    outputs: int

    def __init__(self, bases: Iterable[int], outputs: int | None = None, constant: int = 0) -> None:
        images = tuple([to_int(b, "an output of a bit") for b in bases])
        constant = to_int(constant, "the output for 0")
        if min((*images, constant)) < 0:
            raise LayoutError(f"outputs are at least 0, not {min((*images, constant))}")
        used = max((*images, constant)).bit_length()
        outputs = used if outputs is None else to_int(outputs, "a number of bits")
        if outputs < used:
            raise LayoutError(f"{outputs} output bits are too few: the outputs use {used}")
        object.__setattr__(self, "bases", images)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "constant", constant)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a linear layout is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a linear layout is immutable")

    @staticmethod
    def of(value: Any, bits: int | None = None) -> LinearLayout:
        """The linear map of a layout, a swizzled layout or a swizzle (of `bits` bits; as many as it touches, if left out).

        Raises LayoutError where the map is not linear: an extent that is no power of two, or modes that carry.

        >>> LinearLayout.of(Layout((4, 8), (8, 1))).bases
        (8, 16, 1, 2, 4)
        >>> LinearLayout.of(Swizzle(1, 0, 2)).bases
        (1, 2, 5)
        """
        if type(value) is LinearLayout:
            return value
        if type(value) is Swizzle:
            count = value.base + value.bits + abs(value.shift) if value.bits else 0
            count = count if bits is None else to_int(bits, "a number of bits")
            return LinearLayout([value(1 << j) for j in range(count)], None if bits is None else max(bits, count))
        if type(value) is SwizzledLayout:
            inner = LinearLayout.of(value.layout)
            used = 0
            for base in inner.bases:
                used |= base
            if value.offset < 0 or value.offset & used:
                raise LayoutError(
                    f"the offset {value.offset} carries into the layout, so {value} is not linear over F2"
                )
            return LinearLayout([value.swizzle(b) for b in inner.bases], None, value.swizzle(value.offset))
        if type(value) is not Layout:
            raise LayoutError(
                f"a linear layout is made from a layout, a swizzled layout or a swizzle, not from {value!r}"
            )
        bases: list[int] = []
        used = 0
        for s, d in zip(*value.flat, strict=True):
            if s & (s - 1):
                raise LayoutError(f"{value} is not linear over F2: the extent {s} is no power of two")
            if type(d) is not int or (d < 0 and s > 1):
                raise LayoutError(f"{value} is not linear over F2: the stride {d} is not a number that is at least 0")
            for j in range(s.bit_length() - 1):
                base = d << j
                if base & used:
                    raise LayoutError(
                        f"{value} is not linear over F2: the mode {s}:{d} carries into other bits, at offset {base}"
                    )
                used |= base
                bases.append(base)
        return LinearLayout(bases)

    def __call__(self, x: Any) -> Any:
        """The output for an int, or for every element of an integer array."""
        if type(x) is not int and hasattr(x, "__array__") and getattr(x, "ndim", None):
            import numpy as np

            outputs = np.full(x.shape, self.constant, np.int64)
            for j, base in enumerate(self.bases):
                outputs ^= np.where(x >> j & 1, base, 0)
            return outputs
        x = to_int(x, "an input")
        if x < 0 or x >> len(self.bases):
            raise LayoutError(f"the input {x} does not have {len(self.bases)} bits")
        result = self.constant
        for base in self.bases:
            if x & 1:
                result ^= base
            x >>= 1
        return result

    @property
    def inputs(self) -> int:
        """The number of input bits.

        >>> LinearLayout([1, 2]).inputs
        2
        """
        return len(self.bases)

    @property
    def rank(self) -> int:
        """The number of independent outputs: the map takes 2**rank different values.

        >>> LinearLayout([1, 2, 3]).rank
        2
        """
        return len(eliminate(self.bases)[0])

    @property
    def kernel(self) -> tuple[int, ...]:
        """A basis of the inputs that change nothing: l(x ^ k) == l(x).

        >>> LinearLayout([1, 2, 3]).kernel
        (7,)
        """
        return tuple(eliminate(self.bases)[1])

    def compose(self, inner: LinearLayout) -> LinearLayout:
        """``x -> self(inner(x))``.

        >>> LinearLayout.of(Swizzle(1, 0, 1)).compose(LinearLayout([2, 1])).bases
        (3, 1)
        """
        inner = LinearLayout.of(inner)
        highest = max((*inner.bases, inner.constant), default=0).bit_length()
        if highest > self.inputs:
            raise LayoutError(
                f"the inner map has {highest} output bits, more than the {self.inputs} input bits of the outer"
            )
        images = [self(b) ^ self.constant for b in inner.bases]
        return LinearLayout(images, self.outputs, self(inner.constant))

    def inverse(self) -> LinearLayout:
        """The map that undoes this bijection. Raises LayoutError, with two inputs of one output, where it is none.

        >>> LinearLayout([1, 3]).inverse().bases
        (1, 3)
        """
        proof = self.prove_bijective()
        if not proof:
            raise LayoutError(f"no inverse: {proof.conclusion}")
        found = {pivot: how for pivot, _, how in eliminate(self.bases)[0]}
        linear = LinearLayout([found[j] for j in range(self.inputs)], self.inputs)
        return LinearLayout(linear.bases, self.inputs, linear(self.constant))

    def restrict(self, bits: Iterable[int]) -> LinearLayout:
        """The map on some of the input bits, the others being 0.

        >>> LinearLayout([1, 2, 4]).restrict([2, 0]).bases
        (4, 1)
        """
        return LinearLayout([self.bases[j] for j in bits], self.outputs, self.constant)

    def project(self, bits: Iterable[int]) -> LinearLayout:
        """Some of the output bits, in the given order from the lowest.

        >>> LinearLayout([1, 2, 4]).project([2, 0]).bases
        (2, 0, 1)
        """
        chosen = list(bits)

        def pick(x: int) -> int:
            return sum([(x >> j & 1) << i for i, j in enumerate(chosen)])

        return LinearLayout([pick(b) for b in self.bases], len(chosen), pick(self.constant))

    def _elimination(self) -> list[str]:
        steps = []
        pivots: list[tuple[int, int]] = []
        for j, base in enumerate(self.bases):
            vector = base
            for pivot, reduced in pivots:
                if vector >> pivot & 1:
                    vector ^= reduced
            how = "keeps" if vector == base else "reduced to"
            if vector:
                pivot = vector.bit_length() - 1
                pivots.append((pivot, vector))
                steps.append(f"bit {j} -> {base:#b}, {how} {vector:#b}: pivot at output bit {pivot}")
            else:
                steps.append(f"bit {j} -> {base:#b}, reduced to 0: depends on the bits before")
        return steps

    def prove_injective(self) -> Proof:
        """The proof, by rank, that different inputs have different outputs, or two inputs of one output.

        >>> print(LinearLayout([1, 2, 3]).prove_injective().conclusion)
        rank 2 of 3 input bits: inputs 0 and 7 have the same output 0
        """
        _, kernel = eliminate(self.bases)
        rank = self.inputs - len(kernel)
        head = f"rank {rank} of {self.inputs} input bits: "
        tail = f"inputs 0 and {kernel[0]} have the same output {self.constant}" if kernel else "holds"
        claim = f"different inputs have different outputs, on {self.inputs} input bits"
        return Proof(claim, not kernel, tuple(self._elimination()), head + tail)

    def prove_bijective(self) -> Proof:
        """The proof, by rank, that every output is reached exactly once.

        >>> bool(LinearLayout.of(Swizzle(3, 4, 3)).prove_bijective())
        True
        """
        claim = f"every one of the {self.outputs}-bit outputs has exactly one {self.inputs}-bit input"
        injective = self.prove_injective()
        if injective and self.inputs != self.outputs:
            end = f"rank {self.inputs} of {self.outputs} output bits: outputs are missing"
            return Proof(claim, False, injective.steps, end)
        return Proof(claim, bool(injective), injective.steps, injective.conclusion)

    def prove_no_conflict(self, lanes: Iterable[int], banks: Iterable[int], word: int = 0) -> Proof:
        """The proof that lanes which differ in the input bits `lanes` meet no bank twice unless they read one word.

        `banks` are the output bits that number the bank, `word` the lowest output bit of a word's number.

        >>> tile = LinearLayout.of(SwizzledLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1))))
        >>> bool(tile.prove_no_conflict(lanes=[0, 1, 2], banks=[3, 4, 5]))  # rows of 16 bytes, 128 bytes of banks
        True
        """
        part = self.restrict(lanes)
        words = part.project(range(word, max(word, part.outputs)))
        in_banks = part.project([b for b in banks if b < part.outputs])
        ways = 1 << (words.rank - in_banks.rank)
        claim = f"lanes on {part.inputs} bits that read different words read different banks"
        end = f"rank {words.rank} of words, {in_banks.rank} of banks: "
        tail = "holds" if ways == 1 else f"{ways} words meet in a bank"
        return Proof(claim, ways == 1, tuple(in_banks._elimination()), end + tail)

    def prove_same(self, other: Any) -> Proof:
        """The proof that two maps agree on every input: they do if they agree on 0 and on the single bits.

        >>> bool(LinearLayout.of(Layout((4, 2))).prove_same(Layout(8)))
        True
        """
        other = LinearLayout.of(other)
        claim = "the two maps are the same function"
        if self.inputs != other.inputs:
            return Proof(claim, False, (), f"one has {self.inputs} input bits, the other {other.inputs}")
        inputs = [0, *[1 << j for j in range(self.inputs)]]
        steps = tuple([f"{x:#b} -> {self(x):#b} and {other(x):#b}" for x in inputs])
        wrong = [x for x in inputs if self(x) != other(x)]
        tail = f"they differ at input {wrong[0]}: {self(wrong[0])} and {other(wrong[0])}" if wrong else "holds"
        return Proof(claim, not wrong, steps, f"rank of the difference {'> 0' if wrong else '0'}: {tail}")

    def to_layout(self, shape: Any = None) -> Layout | SwizzledLayout:
        """The layout or swizzled layout that is this map, with a mode for every input mode of `shape` (coalesced without).

        Raises LayoutError where none is.

        >>> LinearLayout([8, 16, 1, 2, 4]).to_layout()
        Layout((4, 8), (8, 1))
        >>> LinearLayout.of(Swizzle(1, 0, 2)).to_layout()
        SwizzledLayout(Swizzle(1, 0, 2), 0, Layout(8, 1))
        """
        from .swizzled import layout_from_bases

        return layout_from_bases(self, shape)

    def __eq__(self, other: object) -> bool:
        if type(other) is not LinearLayout:
            return NotImplemented
        return self.bases == other.bases and self.constant == other.constant

    def __hash__(self) -> int:
        return hash((self.bases, self.constant))

    def __reduce__(self) -> tuple[Any, ...]:
        return (LinearLayout, (self.bases, self.outputs, self.constant))

    def __repr__(self) -> str:
        rest = f", constant={self.constant}" if self.constant else ""
        return f"LinearLayout({list(self.bases)}, {self.outputs}{rest})"
