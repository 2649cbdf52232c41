"""Tensor maps: the driver's verdict on random specifications, and boxes loaded and stored, compared byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stridewright.layout.hardware import HardwareError, TensorMap
from stridewright.layout.hardware.dtypes import data_type
from stridewright.layout.hardware.swizzle_modes import swizzle_mode
from stridewright.layout.hardware.tensor_copy import copy_plan
from stridewright.layout.hardware.tensor_map_driver import driver_arguments
from stridewright.layout.hardware.tensor_map_image import encode_image

from . import kernels

DTYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz")
PACKED = ("e2m1", "e2m1_padded", "e2m3")
SWIZZLES = ("none", "32B", "64B", "128B")
ATOMS = ("128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B")


def random_map(rng: np.random.Generator, spoil: bool) -> tuple[TensorMap, int]:
    """A specification that is valid or nearly so, and the low bits of its address."""
    pick = lambda choices: choices[int(rng.integers(len(choices)))]  # noqa: E731
    rank = int(rng.integers(1, 6))
    dtype = pick(PACKED) if spoil and rng.random() < 0.1 else pick(DTYPES)
    size = max(data_type(dtype).smem_bits // 8, 1)
    swizzle = pick(ATOMS) if spoil and rng.random() < 0.1 else pick(SWIZZLES)
    interleave = pick(("16B", "32B")) if rank >= 3 and rng.random() < 0.15 else "none"
    span = swizzle_mode(swizzle).span or 256
    row = 16 * int(rng.integers(1, max(span // 16, 1) + 1))
    box = [min(max(row // size, 1), 256)] + [int(rng.integers(1, 9)) for _ in range(rank - 1)]
    shape = [int(rng.integers(1, 400)) for _ in range(rank)]
    strides, reach = [], -(-shape[0] * size // 32) * 32
    for extent in shape[1:]:
        strides.append(reach)
        reach *= extent
    steps = [1] * rank if rng.random() < 0.7 else [int(rng.integers(1, 9)) for _ in range(rank)]
    fields: dict[str, Any] = {
        "oob_fill": pick(("zero", "zero", "nan")),
        "l2_promotion": pick(("none", "64B", "128B", "256B")),
        "interleave": interleave,
    }
    address = 0
    if spoil:
        for _ in range(int(rng.integers(1, 3))):
            i, j = int(rng.integers(rank)), int(rng.integers(max(rank - 1, 1)))
            kind = int(rng.integers(8))
            if kind == 0:
                box[i] = int(pick((0, 1, 7, 255, 256, 257, 512)))
            elif kind == 1 and rank > 1:
                strides[j] = int(pick((0, 8, 16, 24, 48, 2**40 - 16, 2**40, 2**33)))
            elif kind == 2:
                shape[i] = int(pick((0, 1, 2**31, 2**32, 2**32 + 1)))
            elif kind == 3:
                steps[i] = int(pick((0, 1, 8, 9)))
            elif kind == 4:
                address = int(pick((4, 8, 16, 32, 48)))
            elif kind == 5:
                box = [int(rng.integers(1, 257)) for _ in range(rank)]
            elif kind == 6:
                box[0] = int(rng.integers(1, 257))
            else:
                fields["oob_fill"] = "nan"
    return TensorMap(dtype, tuple(shape), tuple(strides), tuple(box), swizzle, tuple(steps), **fields), address


def probe_verdicts(device: Any, count: int = 3000) -> Iterator[dict[str, Any]]:
    """Our accept or reject against the driver's on random specifications."""
    rng = np.random.default_rng(1)
    memory = device.buffer(1 << 16)
    accepted = refused = 0
    for _ in range(count):
        m, low = random_map(rng, rng.random() < 0.7)
        status, opaque = device.encode_tensor_map(driver_arguments(m), memory.address + low)
        problems = m.problems(memory.address + low)
        accepted, refused = accepted + (status == 0), refused + (status != 0)
        if (status == 0) != (not problems):
            yield ({"what": str(m), "driver": status, "ours": [str(problem) for problem in problems], "wrong": 1})
        elif status == 0 and isinstance(opaque, bytes):
            other = encode_image(m, memory.address + low)
            if other != opaque:
                yield ({"what": f"bytes of {m}", "driver": opaque.hex(), "ours": other.hex(), "wrong": 1})
    memory.free()
    yield (
        {
            "what": f"{count} random specifications, {accepted} accepted, {refused} refused",
            "elements": count,
            "wrong": 0,
        }
    )


def load_cases() -> list[tuple[TensorMap, tuple[int, ...], int]]:
    """Every swizzle mode of sm_90a for several widths with tiles inside and across the edges, then random boxes."""
    found: list[tuple[TensorMap, tuple[int, ...], int]] = []
    for swizzle in SWIZZLES:
        for dtype in ("u8", "bf16", "f32", "u64"):
            size = data_type(dtype).bits // 8
            inner = (swizzle_mode(swizzle).span or 128) // size
            m = TensorMap(dtype, (512 // size, 40), (768,), (inner, 24), swizzle)
            for coordinates in ((0, 0), (inner, 8), (512 // size - inner // 2, 30), (-(inner // 2), -3)):
                found.append((m, coordinates, int(128 * (len(found) % 8))))
    rng = np.random.default_rng(2)
    while len(found) < 160:
        m, _ = random_map(rng, False)
        if m.problems() or m.smem_bytes > 96 * 1024 or m.oob_fill == "nan" or m.dtype.startswith("tf32"):
            continue
        unit = 16 // min(data_type(m.dtype).bits // 8, 16)
        coordinates = [int(rng.integers(-2, max(m.shape[0] // unit, 1))) * unit]
        coordinates += [int(rng.integers(-3, extent)) for extent in m.shape[1:]]
        if tensor_bytes(m) <= 48 << 20:
            found.append((m, tuple(coordinates), int(128 * rng.integers(8))))
    return found


def tensor_bytes(m: TensorMap) -> int:
    """Bytes from the tensor's address to its last one, whole 16-byte chunks."""
    unit = m.pixel_bytes or m.row_bytes // m.box[0]
    reach = m.shape[0] * unit + sum((n - 1) * d for n, d in zip(m.shape[1:], m.strides_bytes, strict=True))
    return -(-reach // 16) * 16 + 64


def _module(device: Any) -> Any:
    return device.load(kernels.PRELUDE + "".join(kernels.tma_kernel(r, s) for r in range(1, 6) for s in (False, True)))


def probe_loads(device: Any) -> Iterator[dict[str, Any]]:
    """Boxes loaded: every byte of shared memory, and that the barrier completes with the bytes we say."""
    module, rng = _module(device), np.random.default_rng(3)
    for m, coordinates, offset in load_cases():
        data = rng.integers(0, 256, tensor_bytes(m), dtype=np.uint8)
        memory = device.buffer(data)
        status, opaque = device.encode_tensor_map(driver_arguments(m), memory.address)
        what = f"{m.dtype} {m.swizzle} {m.interleave} box {m.box} steps {m.steps} at {coordinates} + {offset}"
        if status:
            yield ({"what": what, "error": f"driver refused: {status}", "wrong": 1})
            memory.free()
            continue
        length = -(-(offset + m.smem_bytes + 1024) // 16) * 16
        image, done = device.buffer(np.zeros(length // 4, np.uint32)), device.buffer(np.zeros(4, np.uint32))
        arguments = [opaque, image, done, length // 4, offset, m.box_bytes, *coordinates]
        module.launch(f"tma_load_{m.rank}d", 128, arguments, kernels.TMA_SHARED)
        seen = image.read().view(np.uint8)
        plan = copy_plan(m, coordinates, offset)
        expected = np.full(length, 0xA5, np.uint8)
        expected[plan.smem] = np.where(plan.tensor >= 0, data[np.maximum(plan.tensor, 0)], 0)
        wrong = int((seen != expected).sum()) + int(done.read()[0] != 1)
        yield ({"what": what, "elements": int(plan.smem.size), "wrong": wrong})
        for buffer in (memory, image, done):
            buffer.free()


def probe_stores(device: Any) -> Iterator[dict[str, Any]]:
    """Boxes stored: every byte of the tensor and of what lies beside it."""
    module, rng = _module(device), np.random.default_rng(5)
    # Interleaved stores were never measured: they come last, where a fault loses nothing else.
    for m, given, offset in sorted(load_cases(), key=lambda case: case[0].interleave != "none"):
        coordinates = tuple(max(c, 0) for c in given)
        try:
            plan = copy_plan(m, coordinates, offset, store=True)
        except HardwareError as error:
            yield ({"what": str(m), "error": str(error), "wrong": 1})
            continue
        total = max(tensor_bytes(m), int(plan.tensor.max(initial=0)) + 1) + 256
        data = rng.integers(0, 256, total, dtype=np.uint8)
        memory = device.buffer(data)
        status, opaque = device.encode_tensor_map(driver_arguments(m), memory.address)
        length = -(-(offset + m.smem_bytes + 1024) // 16) * 16
        tile = rng.integers(0, 256, length, dtype=np.uint8)
        image, done = device.buffer(tile.view(np.uint32)), device.buffer(np.zeros(4, np.uint32))
        what = f"{m.dtype} {m.swizzle} {m.interleave} box {m.box} steps {m.steps} at {coordinates} + {offset}"
        if status == 0:
            arguments = [opaque, image, done, length // 4, offset, 0, *coordinates]
            module.launch(f"tma_store_{m.rank}d", 128, arguments, kernels.TMA_SHARED)
            expected = data.copy()
            expected[plan.tensor] = tile[plan.smem]
            yield ({"what": what, "elements": int(plan.smem.size), "wrong": int((memory.read() != expected).sum())})
        else:
            yield ({"what": what, "error": f"driver refused: {status}", "wrong": 1})
        for buffer in (memory, image, done):
            buffer.free()
