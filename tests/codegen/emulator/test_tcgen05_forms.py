"""Every form of tcgen05.mma against its definition: operands placed by smem_tile, the result by accumulator_layout, both held equal to CuTe's elsewhere.

Everything else in tensor memory must be as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationError
from stridewright.layout.hardware import (
    accumulator_layout,
    instruction_descriptor,
    k_advance,
    matrix_descriptor,
    operand_a_layout,
    smem_tile,
)

from .tcgen05_pieces import PROBE, filled, run_blackwell

TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8, "u8": np.uint8, "e2m1": ml_dtypes.float4_e2m1fn, "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn,
}  # fmt: skip
SMALL = {"e2m1": 4, "e2m3": 6, "e3m2": 6}


@dataclass(frozen=True)
class Case:
    """One form: K is that of two instructions."""

    kind: str
    m: int
    n: int
    a: str
    b: str = ""
    d: str = "f32"
    majors: tuple[str, str] = ("k", "k")
    swizzles: tuple[str, str] = ("128B", "128B")
    group: int = 1
    issue: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    lane: int = 0
    column: int = 0
    ws: bool = False

    @property
    def types(self) -> tuple[str, str]:
        return self.a, self.b or self.a


def random_operand(rows: int, k: int, dtype: str, seed: int) -> NDArray[Any]:
    """Small integers, which every order of summation adds exactly."""
    random = np.random.default_rng(seed)
    low = 0 if dtype == "u8" else -3
    return random.integers(low, 4, (rows, k)).astype(np.float32).astype(TYPES[dtype])


def place(image: NDArray[np.uint8], tile: Any, values: NDArray[Any], dtype: str, at: int, packed: bool = False) -> None:
    """Puts values (rows, k) where the tile's layout has them, from byte `at` on. `packed`: 4-bit values in pairs, without padding."""
    rows, k = values.shape
    for row in range(rows):
        for column in range(k):
            if packed:
                where = int(tile(row, column))
                code = int(values[row, column : column + 1].view(np.uint8)[0]) & 15
                image[at + where // 2] |= code << 4 * (where % 2)
            elif dtype in SMALL:
                bits, chunk = SMALL[dtype], at + int(tile(row, column // 16 * 16))
                code = int(values[row, column : column + 1].view(np.uint8)[0])
                for bit in range(bits):
                    where = column % 16 * bits + bit
                    image[chunk + where // 8] |= (code >> bit & 1) << where % 8
            else:
                raw = values[row, column : column + 1].view(np.uint8)
                start = at + int(tile(row, column)) * raw.size
                image[start : start + raw.size] = raw


def run_case(
    case: Case,
    before: NDArray[np.uint32],
    steps: int = 2,
    seed: int = 0,
    numerics: str = "float32",
    tail: NDArray[np.uint8] | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint32]]:
    """(A, B, tensor memory of all blocks (blocks, 128, 512)) after the instructions. `tail`: the end of the first block's shared memory."""
    group = case.group
    packed = case.kind in ("mxf4", "mxf4nvf4")
    width = 64 if packed else {"f16": 16, "bf16": 16, "tf32": 8}.get(case.a, 32)
    whole_k = width * 4
    operands, words, images = [], [], np.zeros((group, 65536), np.uint8)
    at = 0
    for rows, dtype, major, swizzle, seed_ in zip(
        (case.m, case.n), case.types, case.majors, case.swizzles, (1, 2), strict=True
    ):
        stored = "e2m1_padded" if dtype == "e2m1" and not packed else dtype
        tile = smem_tile(swizzle, major, stored, rows // group, whole_k)
        values = random_operand(rows, whole_k, dtype, seed_)
        for block in range(group):
            place(images[block], tile, values[block * rows // group : (block + 1) * rows // group], dtype, at, packed)
        word = matrix_descriptor(tile, stored, "sm_100a", major, at)
        advance = k_advance(tile, stored, "sm_100a", major)
        words.append(np.array([word + int(advance(step)) for step in range(steps)], np.uint64))
        operands.append(values[:, : width * steps])
        at += 32768
    if tail is not None:
        images[0, -tail.size :] = tail
    fields = dict(case.options)
    idesc = instruction_descriptor(
        case.kind, case.m, case.n, *case.types, case.d, *case.majors, cta_group=group, ws=case.ws, **fields
    )
    start = (case.lane << 16) + case.column
    issue = case.issue or f"mma(slot + {start}u, a[i] + base, b[i] + base, idesc, i > 0)"
    source = filled(
        PROBE, {}, GROUP=f'"{group}"', KIND=f'"{case.kind}"', ISSUE=issue, CLUSTER="__cluster_dims__(2, 1, 1)" if group == 2 else "",
        COMMIT="commit_all(&done, 3)" if group == 2 else "commit(&done)",
    )  # fmt: skip
    after = np.zeros((group, 128, 512), np.uint32)
    args = [
        images.view(np.uint32), np.int32(16384), before, after, *words, np.int32(steps), np.uint32(idesc),
    ]  # fmt: skip
    result = run_blackwell(source, "probe", group, 128, args, shared=65536, seed=seed, numerics=numerics)
    assert [str(race) for race in result.races] == []
    return operands[0], operands[1], after


def pattern(group: int = 1) -> NDArray[np.uint32]:
    """Different words everywhere, small integers as f32."""
    return (np.arange(group * 65536) % 251).astype(np.float32).reshape(group, 128, 512).view(np.uint32)


def expect(case: Case, before: NDArray[np.uint32], product: NDArray[Any]) -> NDArray[np.uint32]:
    """Tensor memory with D (m, n) put where its layout has it."""
    after = before.copy()
    rows = case.m // case.group
    layout = accumulator_layout(case.m, case.n, case.group, case.ws)
    bits = {"f32": np.float32, "s32": np.int32, "f16": np.float16}[case.d]
    values = np.ascontiguousarray(product.astype(bits))
    raw = values.view(np.uint16).astype(np.uint32) if case.d == "f16" else values.view(np.uint32)
    for block in range(case.group):
        for row in range(rows):
            for column in range(case.n):
                where = int(layout(row, column)) + (case.lane << 16) + case.column
                after[block, where >> 16, where & 0xFFFF] = raw[block * rows + row, column]
    return after


def exact(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    return a.astype(np.float32).astype(np.float64) @ b.astype(np.float32).astype(np.float64).T


CASES = {
    "bf16 128x64": Case("f16", 128, 64, "bf16"),
    "bf16 64x8": Case("f16", 64, 8, "bf16"),
    "bf16 64x128 in the upper lanes": Case("f16", 64, 128, "bf16", lane=16, column=96),
    "f16 128x256": Case("f16", 128, 256, "f16", column=128),
    "f16 into f16": Case("f16", 128, 32, "f16", d="f16"),
    "bf16, A along M": Case("f16", 128, 64, "bf16", majors=("mn", "k")),
    "bf16, B along N": Case("f16", 128, 64, "bf16", majors=("k", "mn")),
    "bf16, both, 64-byte swizzle": Case("f16", 128, 96, "bf16", majors=("mn", "mn"), swizzles=("64B", "64B")),
    "bf16, 32-byte swizzles": Case("f16", 64, 64, "bf16", majors=("k", "mn"), swizzles=("32B", "32B")),
    "bf16 without swizzle": Case("f16", 128, 24, "bf16", majors=("k", "mn"), swizzles=("none", "none")),
    "bf16 along M without swizzle": Case("f16", 64, 40, "bf16", majors=("mn", "k"), swizzles=("none", "none")),
    "tf32": Case("tf32", 128, 64, "tf32"),
    "tf32 along M and N": Case("tf32", 128, 64, "tf32", majors=("mn", "mn"), swizzles=("128B_atom_32B", "128B_atom_32B")),
    "e4m3 x e5m2": Case("f8f6f4", 128, 64, "e4m3", "e5m2"),
    "e5m2 into f16, along N": Case("f8f6f4", 128, 128, "e5m2", "e4m3", d="f16", majors=("k", "mn")),
    "e2m1 x e4m3": Case("f8f6f4", 128, 32, "e2m1", "e4m3"),
    "e2m3 x e3m2": Case("f8f6f4", 64, 32, "e2m3", "e3m2", swizzles=("64B", "none")),
    "s8 x u8": Case("i8", 128, 64, "s8", "u8", d="s32"),
    "u8 along M, s8 along N": Case("i8", 128, 32, "u8", "s8", d="s32", majors=("mn", "mn"), swizzles=("128B", "32B")),
    "negated A": Case("f16", 128, 32, "f16", options=(("negate_a", True),)),
    "negated both": Case("tf32", 64, 32, "tf32", options=(("negate_a", True), ("negate_b", True))),
    "pair 256x64": Case("f16", 256, 64, "bf16", group=2),
    "pair 256x256": Case("f16", 256, 256, "f16", group=2, column=256),
    "pair 128x64": Case("f16", 128, 64, "bf16", group=2),
    "pair 128x32, both along M and N": Case("f16", 128, 128, "bf16", group=2, majors=("mn", "mn")),
    "pair tf32": Case("tf32", 256, 128, "tf32", group=2),
    "pair e4m3": Case("f8f6f4", 256, 64, "e4m3", group=2, majors=("mn", "k")),
    "pair s8": Case("i8", 256, 64, "s8", d="s32", group=2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("numerics", ["float32", "hardware"])
def test_a_form_of_mma_computes_its_definition(name: str, numerics: str) -> None:
    case = CASES[name]
    before = pattern(case.group)
    a, b, after = run_case(case, before, seed=len(name) % 3, numerics=numerics)
    sign = -1 if dict(case.options).get("negate_a", False) != dict(case.options).get("negate_b", False) else 1
    assert (after == expect(case, before, sign * exact(a, b) + 0.0)).all()


TO_PRODUCT: dict[str, tuple[Case, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]]] = {
    "accumulates": (
        Case("f16", 128, 64, "bf16", issue="mma(slot, a[i] + base, b[i] + base, idesc, 1)"), lambda start, found: start + found
    ),
    "scales what it accumulates on": (
        Case(
            "f16", 128, 64, "bf16",
            issue='ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p, 2;\\n}"'
            ' :: "r"(slot), "l"(a[i] + base), "l"(b[i] + base), "r"(idesc), "r"(1) : "memory")',
        ),
        lambda start, found: start * 0.25 + found,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TO_PRODUCT)
@pytest.mark.parametrize("numerics", ["float32", "hardware"])
def test_what_an_accumulator_holds_enters(name: str, numerics: str) -> None:
    case, function = TO_PRODUCT[name]
    before = pattern()
    a, b, after = run_case(case, before, steps=1, numerics=numerics)
    start = before[0, :, : case.n].view(np.float32).astype(np.float64)
    assert (after == expect(case, before, function(start, exact(a, b)))).all()


@pytest.mark.parametrize("numerics", ["float32", "hardware"])
@pytest.mark.parametrize("saturate", [True, False])
def test_integers_saturate_or_wrap_after_every_instruction(saturate: bool, numerics: str) -> None:
    """Two instructions: what the first cuts off is not there for the second."""
    issue = "mma(slot, a[i] + base, b[i] + base, idesc, 1)"
    case = Case("i8", 128, 32, "s8", "s8", d="s32", issue=issue, options=(("saturate", saturate),))
    before = np.full((1, 128, 512), (1 << 31) - 20, np.uint32)
    a, b, after = run_case(case, before, numerics=numerics)
    total = before[0, :, :32].view(np.int32).astype(np.int64)
    for step in range(2):
        total = total + exact(a[:, 32 * step : 32 * step + 32], b[:, 32 * step : 32 * step + 32]).astype(np.int64)
        total = np.clip(total, -(1 << 31), (1 << 31) - 1) if saturate else (total + (1 << 31)) % (1 << 32) - (1 << 31)
    assert (total != total.clip(-100, (1 << 31) - 2)).any()
    assert (after == expect(case, before, total)).all()


MASKED = (
    'ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, {%5, %6, %7, %8}, p;\\n}"'
    ' :: "r"(slot), "l"(a[i] + base), "l"(b[i] + base), "r"(idesc), "r"(0), "r"(1), "r"(0x80000000), "r"(0xffffffff), "r"(0) : "memory")'
)
MASKED_PAIR = (
    'ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\n'
    'tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, {%5, %6, %7, %7, %7, %7, %7, %8}, p;\\n}"'
    ' :: "r"(slot), "l"(a[i] + base), "l"(b[i] + base), "r"(idesc), "r"(0), "r"(1), "r"(0x80000000), "r"(0), "r"(2) : "memory")'
)


def test_disabled_lanes_keep_what_they_hold() -> None:
    case, before = Case("f16", 128, 64, "bf16", issue=MASKED), pattern()
    a, b, after = run_case(case, before, steps=1)
    wanted = expect(case, before, exact(a, b))
    off = [0, 63, *range(64, 96)]
    wanted[0, off] = before[0, off]
    assert (after == wanted).all()


def test_disabled_lanes_of_a_pair() -> None:
    case, before = Case("f16", 256, 64, "bf16", group=2, issue=MASKED_PAIR), pattern(2)
    a, b, after = run_case(case, before, steps=1)
    wanted = expect(case, before, exact(a, b))
    for block, lane in ((0, 0), (0, 63), (1, 97)):
        wanted[block, lane] = before[block, lane]
    assert (after == wanted).all()


@pytest.mark.parametrize(
    ("dtype", "m", "group"),
    [("bf16", 128, 1), ("bf16", 64, 1), ("tf32", 128, 1), ("e4m3", 128, 1), ("f16", 256, 2), ("bf16", 128, 2)],
)
def test_a_in_tensor_memory(dtype: str, m: int, group: int) -> None:
    kind = {"tf32": "tf32", "e4m3": "f8f6f4"}.get(dtype, "f16")
    case = Case(kind, m, 64, dtype, group=group, issue="mma_ts(slot, slot + 256 + 8 * i, b[i] + base, idesc, i > 0)")
    before = pattern(group)
    size = np.dtype(TYPES[dtype]).itemsize
    k = 32 // size
    a = random_operand(m, 2 * k, dtype, 9)
    rows = m // group
    layout = operand_a_layout(m, k, group, 8 * size)
    cells = before.view(np.dtype(f"u{size}")).reshape(group, 128, -1)
    for block in range(group):
        for lane in range(128 if rows != 64 or group == 2 else 64):
            for step in range(2):
                for column in range(k):
                    where = int(layout(((lane, column), 0, 0))) * size
                    at = where // 4 & 0xFFFF
                    value = a[block * rows + lane % rows, step * k + column : step * k + column + 1].view(cells.dtype)[
                        0
                    ]
                    cells[block, where >> 18, ((256 + 8 * step + at) * 4 + where % 4) // size] = value
    _, b, after = run_case(case, before)
    assert (after == expect(case, before, exact(a, b))).all()


@pytest.mark.parametrize(
    ("issue", "message"),
    [
        ("mma(slot + (8 << 16), a[i] + base, b[i] + base, idesc, 0)", "may start at lane 0"),
        ("mma(slot + (16 << 16), a[i] + base, b[i] + base, idesc, 0)", "may start at lane 0"),
        ("mma(slot + 456, a[i] + base, b[i] + base, idesc, 0)", "there are columns 0..511"),
        ("mma(slot, (a[i] + base) ^ 1ull << 46, b[i] + base, idesc, 0)", "tcgen05 needs 1"),
        ("mma(slot, a[i] + base, (b[i] + base) ^ 1ull << 61, idesc, 0)", "is not defined"),
        ("mma(slot, (a[i] + base) | 1ull << 14, b[i] + base, idesc, 0)", "reserved bits"),
        ("mma(slot, (a[i] + base) | 1ull << 52, b[i] + base, idesc, 0)", "needs sm_103a"),
        ("mma(slot, (a[i] + base) + 4096, b[i] + base, idesc, 0)", "reads shared addresses"),
        ("mma_ts(slot, slot + 508, b[i] + base, idesc, 0)", "there are columns 0..511"),
        ("mma_ts(slot, slot + (32 << 16) + 256, b[i] + base, idesc, 0)", "must lie in the lanes of D's"),
    ],
)
def test_what_the_instruction_cannot_reach_is_refused(issue: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        run_case(Case("f16", 128, 64, "bf16", issue=issue), pattern())
