"""A persistent GEMM in Triton for comparison: tensor descriptors (TMA), grouped order, a few tiles to choose from."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

CONFIGS = (
    {"BM": 128, "BN": 256, "BK": 64, "stages": 3, "warps": 8},
    {"BM": 128, "BN": 128, "BK": 64, "stages": 4, "warps": 8},
    {"BM": 64, "BN": 128, "BK": 64, "stages": 5, "warps": 4},
    {"BM": 64, "BN": 64, "BK": 128, "stages": 4, "warps": 4},
)
"""Tiles, stages and warps; the fastest for a shape is the one to compare with."""


@triton.jit
def multiply(
    a_of,
    b_of,
    d_of,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SMS: tl.constexpr,
):
    """One program a multiprocessor takes tiles in turn, eight rows of tiles together."""
    rows = tl.cdiv(m, BM)
    columns = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, SMS, flatten=True):
        group = tile // (GROUP * columns)
        height = min(rows - group * GROUP, GROUP)
        row = (group * GROUP + tile % height) * BM
        column = (tile % (GROUP * columns)) // height * BN
        sum = tl.zeros((BM, BN), tl.float32)
        for step in tl.range(0, tl.cdiv(k, BK)):
            sum = tl.dot(a_of.load([row, step * BK]), b_of.load([column, step * BK]).T, sum)
        d_of.store([row, column], sum.to(tl.bfloat16))


def product(config: dict[str, int]) -> Any:
    """``product(a, b, d)`` with the tiles of ``config``, for PyTorch's tensors; the descriptors are made once for each."""
    described: dict[tuple[int, int, int], tuple[Any, ...]] = {}
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def run(a: Any, b: Any, d: Any) -> None:
        (m, k), n = a.shape, b.shape[0]
        place = a.data_ptr(), b.data_ptr(), d.data_ptr()
        if place not in described:
            boxes = (
                (a, [config["BM"], config["BK"]]),
                (b, [config["BN"], config["BK"]]),
                (d, [config["BM"], config["BN"]]),
            )
            described[place] = tuple(TensorDescriptor.from_tensor(array, box) for array, box in boxes)
        tiles = triton.cdiv(m, config["BM"]) * triton.cdiv(n, config["BN"])
        multiply[(min(sms, tiles),)](
            *described[place],
            m,
            n,
            k,
            BM=config["BM"],
            BN=config["BN"],
            BK=config["BK"],
            GROUP=8,
            SMS=min(sms, tiles),
            num_stages=config["stages"],
            num_warps=config["warps"],
        )

    return run
