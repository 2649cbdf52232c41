"""The arithmetic behind composition: first jumps of floor sums, largest residues, and carries that cancel."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace
from itertools import product as cartesian
from math import gcd, prod
from typing import Any

from .errors import LayoutError

Breaks = tuple[tuple[int, Any], ...]
Parts = list[tuple[int, int, Any]]
Counterexample = tuple[tuple[int, ...], Any, Any]

# Only cancelling carries over very large boxes reach these: everything else is decided in a few steps.
_MOST_JUMPS = 200_000
_MOST_POINTS = 20_000
_MOST_BOXES = 50_000


def largest_residue(step: int, count: int, modulus: int) -> int:
    """The largest of ``step * c mod modulus`` for c = 0 .. count-1, where 0 <= step < modulus.

    >>> largest_residue(3, 4, 8), largest_residue(5, 3, 7), largest_residue(2, 100, 8)
    (6, 5, 6)
    """
    if step == 0 or count <= 1:
        return 0
    if step * (count - 1) < modulus:
        return step * (count - 1)
    common = gcd(step, modulus)
    if count >= modulus // common:
        return modulus - common
    return step * place_of_largest(step, count, modulus) % modulus


def place_of_largest(step: int, count: int, modulus: int) -> int:
    """A number c < count at which ``step * c mod modulus`` is largest, where 0 <= step < modulus.

    The places of the records from below and from above follow Euclid's algorithm on (step, modulus): adding the place of the
    lowest residue so far raises a residue by that much, adding the place of the highest lowers it.

    >>> place_of_largest(3, 4, 8), place_of_largest(5, 3, 7)
    (2, 1)
    """
    if step == 0 or count <= 1:
        return 0
    low_place, low = 1, step
    high_place, high = 0, modulus  # `high` is how far the highest residue is below the modulus
    places = [1]
    while low and high:
        k = min((high - 1) // low, (count - 1 - high_place) // low_place)
        if k > 0:
            high_place += k * low_place
            high -= k * low
            places.append(high_place)
        if high_place + low_place >= count:
            break
        raised = k > 0
        k = (low - 1) // high
        if high_place:
            k = min(k, (count - 1 - low_place) // high_place)
        if k > 0:
            low_place += k * high_place
            low -= k * high
        elif not raised:
            break
        if high_place + low_place >= count:
            break
    return max(places, key=lambda c: step * c % modulus)


def largest_fraction_below(p: int, q: int, bound: int) -> tuple[int, int]:
    """The largest fraction u/v <= p/q with v <= bound, in lowest terms; p/q is in [0, 1).

    ``p * c // q == u * c // v`` for every c in 0 .. bound, so that equal fractions mean equal functions there.

    >>> largest_fraction_below(5, 16, 6), largest_fraction_below(1, 4, 6)
    ((1, 4), (1, 4))
    """
    common = gcd(p, q)
    p, q = p // common, q // common
    if q <= bound:
        return p, q
    a, b, c, d = 0, 1, 1, 1  # a/b <= p/q < c/d, neighbours in the Farey sequence
    while b + d <= bound:
        if p * (b + d) >= q * (a + c):  # the mediant is not above: go as far as possible
            k = (p * b - q * a) // (q * c - p * d)
            k = min(max(k, 1), (bound - b) // d)
            a, b = a + k * c, b + k * d
        else:
            k = (q * c - p * d - 1) // (p * b - q * a) if p * b > q * a else (bound - d) // b
            k = min(max(k, 1), (bound - d) // b)
            c, d = c + k * a, d + k * b
    return a, b


def first_break(step: int, breaks: Breaks, count: int) -> int:
    """The smallest c < count with ``sum of w * floor((step mod P) c / P)`` not 0, or `count`.

    >>> first_break(5, ((4, 6), (16, -6)), 8)
    7
    """
    weights: dict[tuple[int, int], Any] = {}
    for p, w in breaks:
        residue = step % p
        if residue and residue * (count - 1) >= p:
            fraction = largest_fraction_below(residue, p, count - 1)
            weights[fraction] = weights.get(fraction, 0) + w
    terms = [(w, u, v) for (u, v), w in weights.items() if w != 0 and u]
    heap = [(-(-v // u), i, 1) for i, (_, u, v) in enumerate(terms)]
    heapify(heap)
    value: Any = 0
    jumps = 0
    while heap and heap[0][0] < count:
        place = heap[0][0]
        while heap[0][0] == place:
            _, i, times = heap[0]
            w, u, v = terms[i]
            value = value + w
            jumps += 1
            heapreplace(heap, (-(-(times + 1) * v // u), i, times + 1))
        if value != 0:
            return place
        if jumps > _MOST_JUMPS:
            raise LayoutError(
                f"compose: the breaks {breaks} cancel along {count} steps of {step} for more than {_MOST_JUMPS} jumps; undecided"
            )
    return count


class _Sums:
    """The carries of a list of parts: at a coordinate, how far the parts are from adding up."""

    def __init__(self, slope: Any, breaks: Breaks, parts: Parts) -> None:
        self.slope, self.breaks, self.parts = slope, breaks, parts
        self.live = [(p, w) for p, w in breaks if sum([largest_residue(e % p, n, p) for n, e, _ in parts]) >= p]

    def error(self, coordinate: tuple[int, ...]) -> Any:
        total: Any = 0
        for p, w in self.live:
            carried = sum([c * e % p for c, (_, e, _) in zip(coordinate, self.parts, strict=True)]) // p
            if carried:
                total = total + w * carried
        return total

    def counterexample(self, coordinate: tuple[int, ...]) -> Counterexample:
        coordinate = self._smaller(coordinate)
        x = sum([c * e for c, (_, e, _) in zip(coordinate, self.parts, strict=True)])
        value = self.slope * x
        for p, w in self.breaks:
            value = value + w * (x // p)
        wanted: Any = 0
        for c, (_, _, r) in zip(coordinate, self.parts, strict=True):
            wanted = wanted + c * r
        return coordinate, value, wanted

    def _smaller(self, coordinate: tuple[int, ...]) -> tuple[int, ...]:
        """The coordinate with entries lowered, one after the other, while the parts still fail to add up."""
        for i, c in enumerate(coordinate):
            for less in (0, 1, c // 4, c // 2, c - 1):
                if 0 <= less < c:
                    candidate = (*coordinate[:i], less, *coordinate[i + 1 :])
                    if self.error(candidate) != 0:
                        coordinate = candidate
                        break
        return coordinate


def resolve_carries(slope: Any, breaks: Breaks, parts: Parts) -> Counterexample | None:
    """A coordinate at which the parts do not add up, with the value there and the sum of the parts; None where there is none.

    >>> resolve_carries(1, ((2, 2), (4, -2)), [(2, 3, 5), (2, 3, 5)]) is None
    True
    >>> resolve_carries(1, ((6, 1),), [(3, 2, 2), (2, 3, 3)])
    ((2, 1), 8, 7)
    """
    sums = _Sums(slope, breaks, parts)
    if not sums.live:
        return None
    for p, _ in sums.live:
        peak = tuple([place_of_largest(e % p, n, p) for n, e, _ in parts])
        if sums.error(peak) != 0:
            return sums.counterexample(peak)
    # The carries cancel where each is largest. Only parts that are not multiples of every live P take part.
    active = [i for i, (n, e, _) in enumerate(parts) if n > 1 and any(e % p for p, _ in sums.live)]
    extents = [parts[i][0] for i in active]
    if prod(extents) <= _MOST_POINTS:
        boxes: Iterator[tuple[int, ...]] = cartesian(*[range(n) for n in extents])
        for point in boxes:
            coordinate = _spread(point, active, len(parts))
            if sums.error(coordinate) != 0:
                return sums.counterexample(coordinate)
        return None
    return _search_boxes(sums, active)


def _spread(point: tuple[int, ...], active: list[int], count: int) -> tuple[int, ...]:
    coordinate = [0] * count
    for i, c in zip(active, point, strict=True):
        coordinate[i] = c
    return tuple(coordinate)


def _search_boxes(sums: _Sums, active: list[int]) -> Counterexample | None:
    """Halves the domain until every box has constant carries."""
    stack = [tuple([(0, sums.parts[i][0]) for i in active])]
    for _ in range(_MOST_BOXES):
        if not stack:
            return None
        box = stack.pop()
        corner = _spread(tuple([low for low, _ in box]), active, len(sums.parts))
        if sums.error(corner) != 0:
            return sums.counterexample(corner)
        if all(_constant(sums, active, box, p) for p, _ in sums.live):
            continue
        widest = max(range(len(box)), key=lambda i: box[i][1] - box[i][0])
        low, stop = box[widest]
        middle = (low + stop) // 2
        for half in ((low, middle), (middle, stop)):
            stack.append((*box[:widest], half, *box[widest + 1 :]))
    raise LayoutError(
        f"compose: carries over {[p for p, _ in sums.live]} cancel in more than {_MOST_BOXES} pieces of the domain; undecided"
    )


def _constant(sums: _Sums, active: list[int], box: tuple[tuple[int, int], ...], p: int) -> bool:
    """Whether the number of carries over p is the same at every point of a box; may miss that, never claims it wrongly."""
    least = most = 0
    for i, (low, stop) in zip(active, box, strict=True):
        e = sums.parts[i][1] % p
        start, run = low * e % p, e * (stop - 1 - low)
        if start + run < p:
            least, most = least + start, most + start + run
        elif p - e < p and start - (p - e) * (stop - 1 - low) >= 0:
            least, most = least + start - (p - e) * (stop - 1 - low), most + start
        elif stop - low > 1:
            return False
    return least // p == most // p
