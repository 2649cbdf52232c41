"""What cuTensorMapEncodeTiled accepts, rule by rule, and what it accepts but nobody wants.

``driver_problems`` is the driver's verdict; ``advice`` holds what the driver does not check. For sm_90 the rules are
those of an H200's driver (580.159.04, CUDA 13.0) as measured on 2,576 specifications, which differ from the text
of cuda.h where noted. For later architectures they are the stated ones together with what was measured on sm_90
(marked): nothing was run there, so what is refused by either is refused.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from .dtypes import data_type, known, names
from .errors import Problem, is_whole, nearest, nearest_multiples
from .swizzle_modes import known_swizzle, swizzle_mode, swizzle_modes

if TYPE_CHECKING:
    from .tensor_map import TensorMap

INTERLEAVES = ("none", "16B", "32B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("zero", "nan")
ARCHITECTURES = (
    "sm_90",
    "sm_90a",
    "sm_100",
    "sm_100a",
    "sm_100f",
    "sm_103",
    "sm_103a",
    "sm_103f",
    "sm_110a",
    "sm_120a",
)
MAXIMUM_RANK = 5  # PTX 5.5.1, cuda.h
MAXIMUM_DIMENSION = 1 << 32  # cuda.h
MAXIMUM_BOX = 256  # cuda.h
MAXIMUM_ELEMENT_STRIDE = 8  # cuda.h
STRIDE_LIMIT = 1 << 40  # cuda.h
ADDRESS_LIMIT = 1 << 64  # globalAddress is a pointer
COORDINATE_LIMIT = 1 << 31  # coordinates are .s32 (PTX 9.7.9.25.5.2)
MAXIMUM_BOX_BYTES = 228 * 1024  # measured on an H200; cuda.h does not say it
CHUNK = 16  # bytes the copy engine moves at once
DESTINATION_ALIGNMENT = 128  # PTX 9.7.9.25.5.2; measured: 128 is enough for every swizzle
SHARED_MEMORY_LIMIT = 227 * 1024  # dynamic shared memory of a CTA, CUDA programming guide, compute capability 9.0


def is_hopper(arch: str) -> bool:
    """Whether the architecture is compute capability 9.0.

    >>> is_hopper("sm_90a"), is_hopper("sm_100a")
    (True, False)
    """
    return arch in ("sm_90", "sm_90a")


def _type_problems(m: TensorMap, address: object) -> list[Problem]:
    """What is no whole number: nothing else can be said of it."""
    found = []
    for field in ("shape", "strides_bytes", "box", "element_strides"):
        for i, value in enumerate(getattr(m, field) or ()):
            if not is_whole(value):
                found.append(Problem(f"{field}[{i}]", repr(value), f"must be an int, not {type(value).__name__}", ""))
    if not is_whole(address):
        found.append(Problem("address", repr(address), f"must be an int, not {type(address).__name__}", ""))
    return found


def _choice(field: str, value: object, choices: tuple[str, ...]) -> list[Problem]:
    if value in choices:
        return []
    fix = f"nearest {nearest(str(value), choices)}" if isinstance(value, str) else ""
    return [Problem(field, repr(value), f"must be one of {', '.join(choices)} (cuda.h)", fix)]


def _enumerator_problems(m: TensorMap) -> list[Problem]:
    found = [] if known(m.dtype) else _choice("dtype", m.dtype, names())
    if not known_swizzle(m.swizzle):
        found += _choice("swizzle", m.swizzle, tuple(mode.name for mode in swizzle_modes()))
    found += _choice("interleave", m.interleave, INTERLEAVES)
    found += _choice("l2_promotion", m.l2_promotion, L2_PROMOTIONS)
    found += _choice("oob_fill", m.oob_fill, OOB_FILLS)
    found += _choice("arch", m.arch, ARCHITECTURES)
    if known(m.dtype) and data_type(m.dtype).tma is None:
        found.append(Problem("dtype", m.dtype, "has no CUtensorMapDataType (cuda.h)", "copy it as u8"))
    return found


def _rank_problems(m: TensorMap) -> list[Problem]:
    found = []
    rank = len(m.shape)
    if not 1 <= rank <= MAXIMUM_RANK:
        found.append(
            Problem("shape", m.shape, f"rank {rank} must be in 1..5 (cuda.h)", "coalesce modes, or copy slice by slice")
        )
    elif rank < 3 and m.interleave in INTERLEAVES[1:]:
        found.append(
            Problem("shape", m.shape, f"rank {rank} must be at least 3 with interleave {m.interleave} (cuda.h)", "")
        )
    for field, length, wanted in (
        ("strides_bytes", len(m.strides_bytes), max(rank - 1, 0)),
        ("box", len(m.box), rank),
        ("element_strides", len(m.steps), rank),
    ):
        if length != wanted:
            rule = f"must have {wanted} entries: rank mismatch, shape has {rank} and {field} {length}"
            fix = "it leaves out the innermost dimension" if field == "strides_bytes" else "one for each dimension"
            found.append(Problem(field, getattr(m, field), rule, fix))
    return found


def _global_problems(m: TensorMap, address: int) -> list[Problem]:
    found = []
    if not 0 <= address < ADDRESS_LIMIT:
        found.append(Problem("address", address, "must be in 0..2^64-1", ""))
    padded = known(m.dtype) and data_type(m.dtype).tma in ("16U4_ALIGN16B", "16U6_ALIGN16B")
    unit = 32 if m.interleave == "32B" or padded else CHUNK
    why = "with interleave 32B" if m.interleave == "32B" else f"for {m.dtype}" if padded else "(cuda.h)"
    if address % unit:
        fix = nearest_multiples(address, unit) + ", or use plain loads"
        found.append(
            Problem("address", address, f"must be a multiple of {unit} {why} ({address % unit} too many)", fix)
        )
    for i, stride in enumerate(m.strides_bytes):
        if stride < 0 or stride >= STRIDE_LIMIT:
            fix = "fold the offset into the address" if stride < 0 else "split the tensor"
            found.append(Problem(f"strides_bytes[{i}]", stride, "must be in 0..2^40-1 (cuda.h)", fix))
        if stride % unit:
            fix = nearest_multiples(stride, unit)
            if known(m.dtype):
                pitch = -(-stride // unit) * unit
                if pitch * 8 % data_type(m.dtype).bits == 0:
                    fix += f" (pad the pitch to {pitch} B = {pitch * 8 // data_type(m.dtype).bits} elements)"
            rule = f"must be a multiple of {unit} {why} ({stride} % {unit} = {stride % unit})"
            found.append(Problem(f"strides_bytes[{i}]", stride, rule, fix))
    for i, size in enumerate(m.shape):
        if not 1 <= size <= MAXIMUM_DIMENSION:
            found.append(
                Problem(f"shape[{i}]", size, "must be in 1..2^32 (cuda.h)", "split the tensor" if size > 0 else "")
            )
    if m.shape and padded and m.shape[0] % 128:
        fix = nearest_multiples(m.shape[0], 128)
        found.append(Problem("shape[0]", m.shape[0], f"must be a multiple of 128 for {m.dtype} (cuda.h)", fix))
    if m.shape and known(m.dtype) and data_type(m.dtype).tma == "16U4_ALIGN8B" and m.shape[0] % 2:
        found.append(
            Problem("shape[0]", m.shape[0], f"must be even for {m.dtype} (cuda.h)", nearest_multiples(m.shape[0], 2))
        )
    return found


def _box_problems(m: TensorMap) -> list[Problem]:
    found = []
    for i, extent in enumerate(m.box):
        if not 1 <= extent <= MAXIMUM_BOX:
            fix = f"use {-(-extent // MAXIMUM_BOX)} copies of at most {MAXIMUM_BOX}" if extent > 0 else ""
            found.append(Problem(f"box[{i}]", extent, "must be in 1..256 (cuda.h)", fix))
    for i, step in enumerate(m.steps):
        if not 1 <= step <= MAXIMUM_ELEMENT_STRIDE:
            # cuda.h says that the first is ignored unless interleaved; the driver checks it all the same.
            found.append(Problem(f"element_strides[{i}]", step, "must be in 1..8 (measured: also the first)", ""))
    if not (known(m.dtype) and data_type(m.dtype).tma) or not m.box:
        return found
    dtype = data_type(m.dtype)
    row_bits = m.box[0] * dtype.smem_bits
    if row_bits % (8 * CHUNK):
        unit = 8 * CHUNK // dtype.smem_bits
        rule = f"box[0] * {dtype.smem_bits / 8:g} bytes = {row_bits / 8:g} must be a multiple of 16 bytes"
        rule += " (measured: also with interleave)" if m.interleave != "none" else " (cuda.h)"
        found.append(Problem("box[0]", m.box[0], rule, nearest_multiples(m.box[0], unit)))
    if dtype.tma in ("16U4_ALIGN16B", "16U6_ALIGN16B") and m.box[0] != 128:
        found.append(Problem("box[0]", m.box[0], f"must be 128 for {m.dtype} (cuda.h)", "128"))
    if known_swizzle(m.swizzle) and m.interleave == "none":
        span = swizzle_mode(m.swizzle).span
        if span and row_bits > span * 8:
            per_box = span * 8 // dtype.smem_bits
            rule = f"box[0] * {dtype.smem_bits / 8:g} bytes = {row_bits // 8} must be at most the {m.swizzle} swizzle span of {span} bytes (cuda.h)"
            wider = [mode.name for mode in swizzle_modes()[:4] if mode.span * 8 >= row_bits]
            fix = f"use {-(-m.box[0] // per_box)} copies of {per_box} elements"
            found.append(Problem("box[0]", m.box[0], rule, fix + (f", or swizzle {wider[0]}" if wider else "")))
    if len(m.box) == len(m.steps) and all(step > 0 for step in m.steps):
        copied = prod(extent // step for extent, step in zip(m.box, m.steps, strict=True)) * dtype.smem_bits
        if copied > MAXIMUM_BOX_BYTES * 8:
            rule = f"box of {copied // 8} bytes, counting box // element_stride, must be at most 233472 (228 KiB; measured)"
            found.append(Problem("box", m.box, rule, f"use {-(-copied // (MAXIMUM_BOX_BYTES * 8))} copies"))
    return found


def _combination_problems(m: TensorMap) -> list[Problem]:
    found = []
    hopper = is_hopper(m.arch)
    dtype = data_type(m.dtype) if known(m.dtype) else None
    if dtype and m.oob_fill == "nan" and (not dtype.floating or dtype.tma == "UINT8" or dtype.packed):
        rule = "NaN fill needs a floating point type (cuda.h)"
        if dtype.floating:
            rule += f": {m.dtype} travels as {dtype.tma}"
        found.append(Problem("oob_fill", "nan", rule, "use zero"))
    if hopper and dtype and dtype.packed:
        found.append(
            Problem(
                "dtype",
                m.dtype,
                f"{dtype.tma} is refused on sm_90 (measured); it needs sm_100",
                "copy packed bytes as u8",
            )
        )
    if hopper and known_swizzle(m.swizzle) and swizzle_mode(m.swizzle).name.startswith("128B_atom"):
        found.append(Problem("swizzle", m.swizzle, "128B_atom modes are refused on sm_90 (measured)", "use 128B"))
    if not hopper and m.interleave == "32B" and m.swizzle != "32B":
        # The H200's driver takes any swizzle here.
        found.append(Problem("swizzle", m.swizzle, "must be 32B with interleave 32B (cuda.h)", "use 32B"))
    if not hopper and dtype and dtype.tma in ("16U4_ALIGN16B", "16U6_ALIGN16B"):
        allowed = ["none", "128B", "128B_atom_32B"] + (["128B_atom_64B"] if dtype.tma == "16U6_ALIGN16B" else [])
        if m.swizzle not in allowed:
            found.append(
                Problem("swizzle", m.swizzle, f"must be one of {', '.join(allowed)} for {m.dtype} (cuda.h)", "")
            )
        if dtype.tma == "16U6_ALIGN16B" and m.interleave != "none":
            found.append(Problem("interleave", m.interleave, f"must be none for {m.dtype} (cuda.h)", ""))
    return found


def driver_problems(m: TensorMap, address: int = 0) -> list[Problem]:
    """Every rule of cuTensorMapEncodeTiled that the specification breaks; empty if the driver would accept it."""
    if not_numbers := _type_problems(m, address):
        return _enumerator_problems(m) + not_numbers
    return (
        _enumerator_problems(m)
        + _rank_problems(m)
        + _global_problems(m, address)
        + _box_problems(m)
        + _combination_problems(m)
    )


def advice(m: TensorMap, store: bool = False) -> list[Problem]:
    """What the driver accepts and yet surprises: bytes written past a row's end, rows padded to the swizzle span,
    ..."""
    if driver_problems(m):
        return []
    found = []
    dtype = data_type(m.dtype)
    row_bits = m.shape[0] * dtype.bits
    if store and m.interleave == "none" and row_bits % (8 * CHUNK):
        row = row_bits // 8
        end = -(-row // CHUNK) * CHUNK
        rule = (
            f"a store writes whole 16-byte chunks ({row} % 16 = {row % 16}): bytes {row}..{end - 1} of each row are"
            " overwritten (measured)"
        )
        found.append(Problem("shape[0]", m.shape[0], rule, "store the tail with predicated st.global"))
    if store and dtype.tma == "16U4_ALIGN16B":
        found.append(Problem("dtype", m.dtype, "16U4_ALIGN16B is load-only (cuda.h)", ""))
    if not store and dtype.tma == "16U6_ALIGN16B" and m.swizzle == "128B_atom_64B":
        found.append(Problem("swizzle", m.swizzle, "is store-only for 16U6_ALIGN16B (cuda.h)", "use 128B_atom_32B"))
    span = swizzle_mode(m.swizzle).span
    row_bytes = m.box[0] * dtype.smem_bits // 8
    if span > row_bytes and m.interleave == "none":
        rule = f"each box row of {row_bytes} bytes takes the full {span}-byte span in shared memory (measured)"
        found.append(Problem("box[0]", m.box[0], rule, f"reserve {m.smem_bytes} bytes, expect {m.box_bytes}"))
    if m.steps[0] != 1 and m.interleave == "none":
        found.append(Problem("element_strides[0]", m.steps[0], "does nothing (measured; cuda.h)", "use 1"))
    if m.smem_bytes > SHARED_MEMORY_LIMIT:
        rule = f"box takes {m.smem_bytes} bytes of shared memory, a CTA has at most {SHARED_MEMORY_LIMIT}"
        found.append(Problem("box", m.box, rule, "split the box"))
    if m.interleave == "32B" and m.swizzle != "32B":
        found.append(Problem("swizzle", m.swizzle, "cuda.h asks for 32B with interleave 32B; this driver does not", ""))
    reach = row_bits // 8
    for i, stride in enumerate(m.strides_bytes):
        if m.interleave == "none" and m.shape[i + 1] > 1 and stride < reach:
            rule = f"is less than the {reach} bytes that dimension {i} reaches: rows overlap"
            found.append(
                Problem(f"strides_bytes[{i}]", stride, rule, "intended only for overlapping views and broadcasts")
            )
        reach = max(reach, stride * (m.shape[i + 1] - 1) + reach)
    return found
