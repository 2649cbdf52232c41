"""Matrix descriptors from layouts, run through real wgmma on tiles of every major, swizzle and type, all k-steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stridewright.layout.hardware import recognise, smem_tile, wgmma_d_layout
from stridewright.layout.hardware.dtypes import data_type

from . import kernels
from .values import image, placed, results

TYPES = [("f32", "bf16"), ("f32", "f16"), ("f32", "tf32"), ("f32", "e4m3"), ("f32", "e5m2"), ("s32", "s8")]
N = 64
STEPS = 4


def cases() -> list[tuple[str, str, str, str, str, str, tuple[int, int]]]:
    """(d, type, major of A, swizzle of A, major of B, swizzle of B, order of atoms)."""
    found = []
    for d, dtype in TYPES:
        majors = ("k", "mn") if data_type(dtype).wgmma_mn_major else ("k",)
        for major in majors:
            for swizzle in ("none", "32B", "64B", "128B"):
                for order in ((0, 1), (1, 0)):
                    found.append((d, dtype, major, swizzle, "k", "none", order))
                    found.append((d, dtype, "k", "128B", major, swizzle, order))
        if len(majors) == 2:
            found += [(d, dtype, "mn", swizzle, "mn", swizzle, (0, 1)) for swizzle in ("none", "32B", "64B", "128B")]
    return found


def probe_descriptors(device: Any) -> Iterator[dict[str, Any]]:
    """A product of random small integers is exact: any byte read from elsewhere shows."""
    sources = []
    for d, dtype in TYPES:
        majors = (0, 1) if data_type(dtype).wgmma_mn_major else (0,)
        sources += [kernels.wgmma_kernel(d, dtype, N, "ss", ta, tb) for ta in majors for tb in majors]
    module = device.load(kernels.PRELUDE + "".join(sources))
    rng = np.random.default_rng(4)
    for d, dtype, a_major, a_swizzle, b_major, b_swizzle, order in cases():
        k = data_type(dtype).wgmma_k * STEPS
        # MN-major atoms of the widest swizzle have 64 rows of 16-bit values; both operands have that many.
        left, right = rng.integers(0, 4, (64, k)), rng.integers(0, 4, (N, k))
        tile_a = smem_tile(a_swizzle, a_major, dtype, 64, k, order)
        tile_b = smem_tile(b_swizzle, b_major, dtype, N, k, order)
        a, b = recognise(tile_a, dtype, "sm_90a", a_major), recognise(tile_b, dtype, "sm_90a", b_major)
        words = [
            operand.descriptor.advanced(int(operand.k_advance(step))).encode()
            for step in range(STEPS)
            for operand in (a, b)
        ]
        buffers = [
            device.buffer(image(tile_a, left, dtype, kernels.A_BYTES).view(np.uint32)),
            device.buffer(image(tile_b, right, dtype, kernels.B_BYTES).view(np.uint32)),
            device.buffer(np.array(words, np.uint64)),
            device.buffer(np.zeros(512, np.uint32)),
        ]
        out = device.buffer(np.zeros((128, kernels.wgmma_registers(d, N)), np.uint32))
        name = kernels.wgmma_name(d, dtype, N, "ss", int(a_major == "mn"), int(b_major == "mn"))
        module.launch(name, 128, [*buffers, STEPS, out], kernels.WGMMA_SHARED)
        flat = np.zeros(64 * N)
        flat[placed(wgmma_d_layout(N, dtype), 128)] = results(out.read(), d)
        product = flat.reshape(N, 64).T
        wrong = int((product != left @ right.T).sum())
        for buffer in (*buffers, out):
            buffer.free()
        what = f"{dtype} A {a_major} {a_swizzle}, B {b_major} {b_swizzle}, atoms {order}"
        yield ({"what": what, "elements": 64 * N, "wrong": wrong})
