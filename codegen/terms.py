"""The struct ``Terms`` of ``kernels/cuda/finish.cuh`` as the host fills it: what a launch takes beside A, B and D.

Knows the struct's fields, in its order, and how a GPU and the emulator take pointers; knows nothing of shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

POINTERS = ("alpha", "scale_a", "scale_b")
"""The three factors of every sum."""

TERMS = np.dtype(
    [
        ("factors", "<u8", (3,)),
        ("c", "<u8"),
        ("c_row_stride", "<u8"),
        ("c_batch_stride", "<u8"),
        ("bias", "<u8"),
        ("bias_batch_stride", "<u8"),
        ("aux", "<u8"),
        ("aux_row_stride", "<u8"),
        ("aux_batch_stride", "<u8"),
        ("amax", "<u8"),
        ("scale_a", "<u8"),
        ("scale_a_stride", "<u8"),
        ("scale_a_k_stride", "<u8"),
        ("scale_a_batch_stride", "<u8"),
        ("scale_b", "<u8"),
        ("scale_b_stride", "<u8"),
        ("scale_b_k_stride", "<u8"),
        ("scale_b_batch_stride", "<u8"),
        ("scale_d", "<u8"),
        ("d_batch_stride", "<u8"),
        ("offsets", "<u8"),
        ("alpha", "<f4"),
        ("beta", "<f4"),
        ("batches", "<u4"),
        ("unused", "<u4"),
    ]
)
"""Field for field the struct of the device; strides in elements."""


def packed(numbers: Mapping[str, float], pointers: Mapping[str, int]) -> NDArray[Any]:
    """The struct with these numbers and addresses, one element. Pointers are fields, or "factor0" to "factor2".

    >>> packed({"alpha": 2.0, "batches": 3}, {"factor1": 4096})["factors"].tolist()
    [[0, 4096, 0]]
    """
    struct = np.zeros(1, TERMS)
    for name, value in numbers.items():
        struct[name] = value
    for name, address in pointers.items():
        if name.startswith("factor"):
            struct["factors"][0, int(name[-1])] = address
        else:
            struct[name] = address
    return struct


def pointer_offset(name: str) -> int:
    """Byte of the struct at which a pointer lies.

    >>> pointer_offset("factor2"), pointer_offset("c")
    (16, 24)
    """
    fields = TERMS.fields
    assert fields is not None
    return 8 * int(name[-1]) if name.startswith("factor") else int(fields[name][1])
