"""The arithmetic behind composition: first jumps of floor sums, largest residues, and carries that cancel."""

from __future__ import annotations

from heapq import heapify, heapreplace
from itertools import product as cartesian
from math import gcd
from typing import Any

Breaks = tuple[tuple[int, Any], ...]
Parts = list[tuple[int, int, Any]]


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
    # Euclid on (step, modulus): the largest residue is modulus minus the smallest positive residue of -step * c.
    best = max(step * c % modulus for c in _record_steps(step, modulus, count))
    return best


def _record_steps(step: int, modulus: int, count: int) -> list[int]:
    """Numbers c < count among which the largest residue of step * c is reached: the records, found by Euclid's algorithm.

    Upward records step by the place of the last downward record (smallest residue) and the other way round.
    """
    low_place, low = 1, step  # smallest positive residue so far, as a step up
    high_place, high = 0, modulus  # modulus - largest residue so far (0 residue counts as a distance of modulus)
    places = [1]
    # Invariant: adding low_place raises the residue by low; adding high_place lowers it by high.
    while low and high:
        # raise the top: largest k with k * low < high
        k = (high - 1) // low
        if low_place:
            k = min(k, (count - 1 - high_place) // low_place)
        if k > 0:
            high_place += k * low_place
            high -= k * low
            places.append(high_place)
        if high_place + low_place >= count:
            break
        # lower the bottom: largest k with k * high < low
        k = (low - 1) // high
        if high_place:
            k = min(k, (count - 1 - low_place) // high_place)
        if k > 0:
            low_place += k * high_place
            low -= k * high
        elif (high - 1) // low <= 0:
            break
        if high_place + low_place >= count:
            break
    return [p for p in places if p < count]


def first_break(step: int, breaks: Breaks, count: int) -> int:
    """The smallest c < count with ``sum of w * floor((step mod P) c / P)`` not 0, or `count`.

    >>> first_break(5, ((4, 6), (16, -6)), 8)
    7
    """
    terms: list[tuple[Any, int, int]] = []
    for p, w in breaks:
        residue = step % p
        if residue and residue * (count - 1) >= p:
            terms.append((w, residue, p))
    heap = [(-(-p // residue), i, 1) for i, (_, residue, p) in enumerate(terms)]
    heapify(heap)
    value: Any = 0
    while heap and heap[0][0] < count:
        place = heap[0][0]
        while heap[0][0] == place:
            _, i, times = heap[0]
            w, residue, p = terms[i]
            value = value + w
            heapreplace(heap, (-(-(times + 1) * p // residue), i, times + 1))
        if value != 0:
            return place
    return count


def resolve_carries(slope: Any, breaks: Breaks, parts: Parts) -> tuple[tuple[int, ...], Any, Any] | None:
    """A coordinate at which the parts do not add up, with the value there and the sum of the parts; None where there is none.

    >>> resolve_carries(1, ((2, 2), (4, -2)), [(2, 3, 5), (2, 3, 5)]) is None
    True
    """
    for c in cartesian(*[range(n) for n, _, _ in parts]):
        x = sum([k * e for k, (_, e, _) in zip(c, parts, strict=True)])
        value = slope * x
        for p, w in breaks:
            value = value + w * (x // p)
        wanted: Any = 0
        for k, (_, _, r) in zip(c, parts, strict=True):
            wanted = wanted + k * r
        if value != wanted:
            return c, value, wanted
    return None
