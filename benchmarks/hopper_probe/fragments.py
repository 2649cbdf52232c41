"""Which thread holds which element: probed by tagging, and compared with the package's layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stridewright.layout.hardware import (
    ldmatrix_layout,
    matrix_descriptor,
    mma_a_layout,
    mma_b_layout,
    mma_d_layout,
    smem_tile,
    stmatrix_layout,
    wgmma_a_layout,
    wgmma_d_layout,
)
from stridewright.layout.hardware.dtypes import data_type
from stridewright.layout.hardware.fragments import MMA_SHAPES, MmaShape

from . import kernels
from .values import Array, digits, image, placed, registers, results

WGMMA = [
    (d, a, n)
    for d, a in (("f32", "bf16"), ("f16", "f16"), ("f32", "f16"), ("f32", "tf32"), ("f32", "e4m3"), ("s32", "s8"))
    for n in ((8, 16, 24, 64, 128, 256) if a == "bf16" else (8, 24, 96, 256))
]
A_TYPES = [("f32", "bf16", 16), ("f32", "f16", 16), ("f32", "tf32", 8), ("f32", "e4m3", 32), ("s32", "s8", 32)]


def tagged(numbers: Array, other: int, k: int, first: bool) -> tuple[Array, Array]:
    """A (rows of ``numbers``) and B such that the product is ``numbers`` of the row, or of the column if not
    ``first``."""
    parts = digits(numbers, 3)
    tags, weights = np.zeros((numbers.size, k), np.int64), np.zeros((other, k), np.int64)
    for i, part in enumerate(parts):
        tags[:, i], weights[:, i] = part, 8**i
    return (tags, weights) if first else (weights, tags)


def run_wgmma(
    module: Any,
    device: Any,
    d: str,
    a: str,
    n: int,
    left: Array,
    right: Array,
    source: str = "ss",
    words: Array | None = None,
) -> Array:
    """One wgmma of (64, k) x (n, k) in unswizzled tiles; (128, values) of the accumulator."""
    k = data_type(a).wgmma_k
    tile_a, tile_b = smem_tile("none", "k", a, 64, k), smem_tile("none", "k", a, n, k)
    count = kernels.wgmma_registers(d, n)
    a_image = device.buffer(image(tile_a, left, a, kernels.A_BYTES).view(np.uint32))
    b_image = device.buffer(image(tile_b, right, a, kernels.B_BYTES).view(np.uint32))
    pair = np.array([matrix_descriptor(tile_a, a), matrix_descriptor(tile_b, a)], np.uint64)
    descriptors, fragment = (
        device.buffer(pair),
        device.buffer(np.zeros(512, np.uint32) if words is None else words.ravel()),
    )
    out = device.buffer(np.zeros((128, count), np.uint32))
    name = kernels.wgmma_name(d, a, n, source)
    module.launch(name, 128, [a_image, b_image, descriptors, fragment, 1, out], kernels.WGMMA_SHARED)
    found = results(out.read(), d)
    for buffer in (a_image, b_image, descriptors, fragment, out):
        buffer.free()
    return found


def probe_wgmma(device: Any) -> Iterator[dict[str, Any]]:
    """D of every type and N by row and column tags; A in registers by the identity as B."""
    sources = [kernels.wgmma_kernel(d, a, n) for d, a, n in WGMMA]
    sources += [kernels.wgmma_kernel(d, a, n, "rs") for d, a, n in A_TYPES]
    module = device.load(kernels.PRELUDE + "".join(sources))
    for d, a, n in WGMMA:
        k = data_type(a).wgmma_k
        left, right = tagged(np.arange(64), n, k, True)
        rows = run_wgmma(module, device, d, a, n, left, right)
        left, right = tagged(np.arange(n), 64, k, False)
        columns = run_wgmma(module, device, d, a, n, left, right)
        place = placed(wgmma_d_layout(n, a), 128)
        wrong = int((rows + 64 * columns != place).sum())
        yield ({"what": f"wgmma D {d}.{a} n{n}", "elements": int(place.size), "wrong": wrong})
    for d, a, n in A_TYPES:
        layout = placed(wgmma_a_layout(a), 128)
        k = data_type(a).wgmma_k
        numbers = np.arange(layout.size).reshape(layout.shape)
        seen = np.zeros((64, k), np.int64)
        identity = (np.arange(n)[:, None] == np.arange(k)[None, :]).astype(np.int64)
        for i, part in enumerate(digits(numbers, 4)):
            values = run_wgmma(module, device, d, a, n, np.zeros((64, k), int), identity, "rs", registers(part, a))
            flat = np.zeros(64 * n, np.int64)
            flat[placed(wgmma_d_layout(n, a), 128)] = values.astype(np.int64)
            seen += flat.reshape(n, 64).T[:, :k] << (3 * i)
        expected = np.zeros(64 * k, np.int64)
        expected[layout] = numbers
        wrong = int((seen != expected.reshape(k, 64).T).sum())
        yield ({"what": f"wgmma A in registers {a}", "elements": int(layout.size), "wrong": wrong})


def _run_mma(module: Any, device: Any, shape: MmaShape, d: str, left: Array, right: Array) -> Array:
    """One mma.sync of element values given as (32, elements) fragments; the (M, N) product by the D layout."""
    words = kernels.mma_words(shape, d)
    buffers = [device.buffer(registers(part, shape.dtype)) for part in (left, right)]
    out = device.buffer(np.zeros((32, words[2]), np.uint32))
    module.launch(kernels.mma_name(shape, d), 32, [*buffers, out])
    found = results(out.read(), d)
    for buffer in (*buffers, out):
        buffer.free()
    return found


def probe_mma(device: Any) -> Iterator[dict[str, Any]]:
    """A, B and D of every mma.sync by tags, each with the other two where the layouts have them."""
    cases = [(shape, d) for shape in MMA_SHAPES for d in shape.accumulators]
    for shape, d in cases:
        what = f"mma.sync {shape.name} {d}.{shape.dtype}"
        try:
            # One module a case: a shape that this compiler does not know must not hide the others.
            module = device.load(kernels.PRELUDE + kernels.mma_kernel(shape, d))
            yield ({"what": what, **_mma_record(module, device, shape, d)})
        except Exception as error:
            yield ({"what": what, "error": str(error)[:300]})


def _mma_record(module: Any, device: Any, shape: MmaShape, d: str) -> dict[str, Any]:
    m, n, k = shape.m, shape.n, shape.k
    arguments = (m, n, k, shape.dtype)
    a_place, b_place, d_place = (
        placed(layout(*arguments), 32) for layout in (mma_a_layout, mma_b_layout, mma_d_layout)
    )

    def fragments(left: Array, right: Array) -> tuple[Array, Array]:
        return left.T.ravel()[a_place], right.T.ravel()[b_place]

    def product(left: Array, right: Array) -> Array:
        flat = np.zeros(m * n, np.int64)
        flat[d_place] = _run_mma(module, device, shape, d, left, right).astype(np.int64)
        return flat.reshape(n, m).T

    # D: the raw fragment against row and column tags.
    rows = _run_mma(module, device, shape, d, *fragments(*tagged(np.arange(m), n, k, True)))
    columns = _run_mma(module, device, shape, d, *fragments(*tagged(np.arange(n), m, k, False)))
    wrong = int((rows + m * columns != d_place).sum())
    # A: register elements numbered; B picks eight columns of K at a time. B likewise with A picking M of them.
    for mine, place, extent, width in ((0, a_place, m, n), (1, b_place, n, m)):
        numbers = np.arange(place.size).reshape(place.shape)
        seen = np.zeros((extent, k), np.int64)
        for start in range(0, k, width):
            picker = (np.arange(width)[:, None] + start == np.arange(k)[None, :]).astype(np.int64)
            for i, part in enumerate(digits(numbers, 4)):
                pair = (part, picker.T.ravel()[b_place]) if mine == 0 else (picker.T.ravel()[a_place], part)
                found = product(*pair)
                found = found if mine == 0 else found.T
                stop = min(start + width, k)
                seen[:, start:stop] += found[:, : stop - start] << (3 * i)
        expected = np.zeros(extent * k, np.int64)
        expected[place] = numbers
        wrong += int((seen != expected.reshape(k, extent).T).sum())
    return {"elements": int(a_place.size + b_place.size + d_place.size), "wrong": wrong}


def probe_matrix_moves(device: Any) -> Iterator[dict[str, Any]]:
    """ldmatrix and stmatrix: 16-bit values that name their own place."""
    cases = [(op, n, trans) for op in ("ldmatrix", "stmatrix") for n in (1, 2, 4) for trans in (False, True)]
    module = device.load(kernels.PRELUDE + "".join(kernels.matrix_kernel(*case) for case in cases))
    for op, n, trans in cases:
        out = device.buffer(np.zeros(32 * n if op == "ldmatrix" else 128, np.uint32))
        module.launch(f"{op}_x{n}{'_trans' if trans else ''}", 32, [out])
        halves = out.read().view(np.uint16).astype(np.int64)
        out.free()
        place = placed((ldmatrix_layout if op == "ldmatrix" else stmatrix_layout)(n, trans), 32)
        if op == "ldmatrix":
            wrong = int((halves.reshape(32, 2 * n) != place).sum())
        else:
            # Shared memory holds for each place the number 2 * (lane * n + register) + half.
            expected = np.full(256, 0xFFFF, np.int64)
            expected[place] = np.arange(place.size).reshape(place.shape)
            wrong = int((halves != expected).sum())
        yield ({"what": f"{op}.x{n}{'.trans' if trans else ''}", "elements": int(place.size), "wrong": wrong})
