"""Whatever is handed to an operation, it answers or raises LayoutError: no other exception, and no wait without end."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import numpy as np
import pytest
import sympy

import stridewright.layout as library
from stridewright.layout import E, Layout, LayoutError, LinearLayout, Swizzle, compose, dimension

OPERANDS: list[Any] = [
    0, 1, -1, 4, 2**70, True, 2.5, float("nan"), None, "4:1", b"x", {}, object(), np.int64(4), np.float32(2), np.arange(3),
    (), (0,), ((),), (1, 1), (4, 8), (4, (2,)), [4, 2], (None, 2), (4, True), (2.0,),
    Layout(4), Layout((4, 8), (8, 1)), Layout((), ()), Layout((4, 2), (1, 2)), Layout((2**70, 3), (1, 2**70)), Layout(((2,),), ((3,),)),
    Layout((4, (2, 3)), (-1, (0, 5))), Layout((4, 8), (E(0), E(1))), E(0), Swizzle(3, 3, 3), Swizzle(0, 0, 0),
    compose(Swizzle(2, 1, 2), Layout((4, 8))), LinearLayout([1, 2]), sympy.Symbol("n"), dimension("N", 4), Layout((16, dimension("N", 4))),
]  # fmt: skip
OPERATIONS = [
    name for name in library.__all__
    if name not in {"E", "Layout", "LayoutError", "Proof", "Explanation", "SizeSymbol", "LinearLayout", "product"}
]  # fmt: skip


def run(seed: int, cases: int) -> None:
    rng = random.Random(seed)
    for _ in range(cases):
        name = rng.choice(OPERATIONS)
        arguments = [rng.choice(OPERANDS) for _ in range(rng.choice((1, 1, 2, 2, 2, 3)))]
        start = time.process_time()
        try:
            getattr(library, name)(*arguments)
        except LayoutError as error:
            assert str(error)  # noqa: PT017
        except TypeError as error:
            # Only the wrong number of arguments.
            assert re.search(r"(missing|takes) .*argument", str(error)), (name, arguments)  # noqa: PT017
        assert time.process_time() - start < 5, (name, arguments)


def test_operands_of_every_kind_are_answered_or_refused() -> None:
    run(1, 6000)


@pytest.mark.slow
def test_operands_of_every_kind_are_answered_or_refused_many_times() -> None:
    run(2, 100_000)
