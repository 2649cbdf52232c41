"""Integer questions behind complements and inverses: do sums of modes collide, and is a linear system solvable in integers?"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from .errors import LayoutError

_MOST_STEPS = 1_000_000


def collision(modes: Sequence[tuple[int, int]]) -> tuple[int, ...] | None:
    """Differences c with abs(c[k]) < s[k], not all 0, whose offsets ``sum of c[k] d[k]`` vanish; None if modes (s, d) have none.

    Two coordinates of a layout whose difference is c have equal offsets: None means that the layout is injective.

    >>> collision([(4, 1), (2, 2)]), collision([(3, 2), (2, 3)])
    ((-2, 1), None)
    """
    order = sorted([i for i, (s, _) in enumerate(modes) if s > 1], key=lambda i: -abs(modes[i][1]))
    strides = [modes[i][1] for i in order]
    limits = [modes[i][0] - 1 for i in order]
    if strides and strides[-1] == 0:
        return tuple([int(i == order[-1]) for i in range(len(modes))])
    reach = [0] * (len(order) + 1)
    common = [0] * (len(order) + 1)
    for k in range(len(order) - 1, -1, -1):
        reach[k] = reach[k + 1] + limits[k] * abs(strides[k])
        common[k] = gcd(common[k + 1], strides[k])
    chosen = [0] * len(order)
    steps = 0

    def search(k: int, total: int, trivial: bool) -> bool:
        nonlocal steps
        if k == len(order):
            return total == 0 and not trivial
        d, rest, g = strides[k], reach[k + 1], common[k + 1]
        ends = sorted(((-rest - total) // d, (rest - total) // d))
        low, high = max(ends[0], 0 if trivial else -limits[k]), min(ends[1] + 1, limits[k])
        step, start = 1, low
        if g:
            # total + c d must be a multiple of g
            h = gcd(d, g)
            if total % h:
                return False
            step = g // h
            first = (-(total // h) * pow(d // h, -1, step)) % step if step > 1 else 0
            start = low + (first - low) % step
        for c in range(start, high + 1, step):
            steps += 1
            if steps > _MOST_STEPS:
                raise LayoutError(f"whether the modes {list(modes)} collide is not settled after {_MOST_STEPS} steps")
            after = total + c * d
            if abs(after) > rest or (k == len(order) - 1 and after):
                continue
            chosen[k] = c
            if search(k + 1, after, trivial and c == 0):
                return True
        chosen[k] = 0
        return False

    if not search(0, 0, True):
        return None
    result = [0] * len(modes)
    for i, c in zip(order, chosen, strict=True):
        result[i] = c
    return tuple(result)


def solve_integers(rows: Sequence[Sequence[int]], wanted: Sequence[int]) -> list[int] | None:
    """Integers x with ``rows @ x == wanted``, or None. Unknowns left free are 0 where that is possible.

    Column operations bring the rows to echelon form (Hermite's), which keeps the solutions integral.

    >>> solve_integers([[2, 3]], [1]), solve_integers([[2, 4]], [1])
    ([-1, 1], None)
    """
    count = len(rows[0]) if rows else 0
    columns = [[row[j] for row in rows] for j in range(count)]
    track = [[int(i == j) for i in range(count)] for j in range(count)]
    pivot = 0
    solution = [0] * count
    for i in range(len(rows)):
        while True:
            live = [j for j in range(pivot, count) if columns[j][i]]
            if len(live) <= 1:
                break
            least = min(live, key=lambda j: abs(columns[j][i]))
            for j in live:
                if j != least:
                    q = columns[j][i] // columns[least][i]
                    columns[j] = [x - q * y for x, y in zip(columns[j], columns[least], strict=True)]
                    track[j] = [x - q * y for x, y in zip(track[j], track[least], strict=True)]
        rest = wanted[i] - sum([columns[j][i] * solution[j] for j in range(pivot)])
        if not live:
            if rest:
                return None
            continue
        j = live[0]
        columns[pivot], columns[j] = columns[j], columns[pivot]
        track[pivot], track[j] = track[j], track[pivot]
        if rest % columns[pivot][i]:
            return None
        solution[pivot] = rest // columns[pivot][i]
        pivot += 1
    return [sum([track[j][i] * solution[j] for j in range(pivot)]) for i in range(count)]
