"""Block-scaled and weight-stationary tcgen05.mma against their definitions. Scale factors lie where scale_layout, held equal to CuTe's, has them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationError
from stridewright.layout.hardware import MatrixDescriptor, scale_layout, scale_smem_layout

from .test_tcgen05_forms import Case, exact, expect, pattern, run_case

SCALE_A, SCALE_B = 256, 384
"""Columns of the scale factors."""


def scaled(kind: str, qualifier: str, group: int, ids: str, step_a: int | str, step_b: int | str) -> str:
    """ISSUE of a block-scaled mma: `ids` is what a step adds to the descriptor, `step_a` and `step_b` are its columns of scale factors."""
    return (
        'ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\n'
        f'tcgen05.mma.cta_group::{group}.kind::{kind}.block_scale{qualifier} [%0], %1, %2, %3, [%5], [%6], p;\\n}}"'
        f' :: "r"(slot), "l"(a[i] + base), "l"(b[i] + base), "r"(idesc + ({ids})), "r"((u32)(i > 0)), "r"(slot + {SCALE_A} + {step_a}),'
        f' "r"(slot + {SCALE_B} + {step_b}) : "memory")'
    )


MX8, MX4, NV4 = "(i << 29) + (i << 4)", "(i % 2 * 2 << 29) + (i % 2 * 2 << 4)", "0"
# Case, vector, scale type, steps along k.
CASES: dict[str, tuple[Case, int, str, int]] = {
    "mxf8f6f4 e4m3": (Case("mxf8f6f4", 128, 64, "e4m3", issue=scaled("mxf8f6f4", "", 1, MX8, 0, 0)), 32, "ue8m0", 4),
    "mxf8f6f4 e2m1 x e5m2, N = 256": (
        Case("mxf8f6f4", 128, 256, "e2m1", "e5m2", issue=scaled("mxf8f6f4", ".scale_vec::1X", 1, MX8, 0, 0)), 32, "ue8m0", 4
    ),
    "mxf8f6f4 along M and N": (
        Case("mxf8f6f4", 128, 128, "e5m2", "e4m3", majors=("mn", "mn"), issue=scaled("mxf8f6f4", ".block32", 1, MX8, 0, 0)), 32, "ue8m0", 3
    ),
    "mxf4": (Case("mxf4", 128, 64, "e2m1", issue=scaled("mxf4", ".block32", 1, MX4, "i / 2 * 4", "i / 2 * 4")), 32, "ue8m0", 4),
    "mxf4nvf4, 16 a factor": (
        Case("mxf4nvf4", 128, 128, "e2m1", issue=scaled("mxf4nvf4", ".block16", 1, NV4, "i * 4", "i * 4")), 16, "ue4m3", 3
    ),
    "mxf4nvf4, 32 a factor": (
        Case("mxf4nvf4", 128, 64, "e2m1", issue=scaled("mxf4nvf4", ".scale_vec::2X", 1, MX4, "i / 2 * 4", "i / 2 * 4")), 32, "ue8m0", 2
    ),
    "pair mxf8f6f4": (Case("mxf8f6f4", 256, 128, "e4m3", group=2, issue=scaled("mxf8f6f4", "", 2, MX8, 0, 0)), 32, "ue8m0", 4),
    "pair mxf4nvf4": (
        Case("mxf4nvf4", 256, 256, "e2m1", group=2, issue=scaled("mxf4nvf4", ".block16", 2, NV4, "i * 4", "i * 8")), 16, "ue4m3", 2
    ),
}  # fmt: skip


def put_scales(
    memory: NDArray[np.uint32], codes: NDArray[np.uint8], kind: str, vector: int, column: int, steps: int
) -> None:
    """Scale factors (rows, per instruction * steps) into one block's tensor memory."""
    rows = -(-codes.shape[0] // 128) * 128
    layout = scale_layout(kind, rows, vector, 4 if steps > 2 else 2)
    each = codes.shape[1] // steps
    cells = memory.view(np.uint8).reshape(128, 2048)
    for step in range(steps):
        where = (
            (step,)
            if not isinstance(layout.shape[2], tuple)
            else ((step % layout.shape[2][0], step // layout.shape[2][0]),)
        )
        for row in range(codes.shape[0]):
            for copy in range(4):
                for number in range(each):
                    # scale_layout counts a row as (32, groups) and then four copies.
                    cell = int(layout((((row % 32, row // 32), copy), (0, number)), 0, *where))
                    cells[cell >> 18, (column + (cell & 0x3FFFF) // 4) * 4 + cell % 4] = codes[
                        row, step * each + number
                    ]


def factors(codes: NDArray[np.uint8], scale: str) -> NDArray[np.float64]:
    if scale == "ue8m0":
        return 2.0 ** (codes.astype(np.float64) - 127)
    return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)


@pytest.mark.parametrize("name", CASES)
def test_block_scaled_products(name: str) -> None:
    case, vector, scale, steps = CASES[name]
    case = Case(**{**case.__dict__, "options": (("scale", scale),)})
    before = pattern(case.group)
    each = (64 if case.kind != "mxf8f6f4" else 32) // vector
    random = np.random.default_rng(7)
    low, high = (125, 130) if scale == "ue8m0" else (0x30, 0x41)
    codes = [random.integers(low, high, (rows, each * steps)).astype(np.uint8) for rows in (case.m, case.n)]
    half = case.m // case.group
    for block in range(case.group):
        put_scales(before[block], codes[0][block * half : (block + 1) * half], case.kind, vector, SCALE_A, steps)
        put_scales(before[block], codes[1], case.kind, vector, SCALE_B, steps)
    for numerics in ("float32", "hardware"):
        a, b, after = run_case(case, before, steps, seed=len(name) % 3, numerics=numerics)
        values = [
            operand.astype(np.float32).astype(np.float64) * np.repeat(factors(code, scale), vector, axis=1)
            for operand, code in zip((a, b), codes, strict=True)
        ]
        assert (after == expect(case, before, values[0] @ values[1].T)).all()


def test_scale_factors_come_by_copies_as_in_kernels() -> None:
    """512 bytes of scale factors for 128 rows, as scale_smem_layout has them, go to tensor memory by one tcgen05.cp each; cp -> mma is pipelined."""
    copy = 'if (i == 0) {{ ASM("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" :: "r"(slot + {column}), "l"(base + 0x{word:x}ull) : "memory"); }}'
    bytes_ = np.zeros(1024, np.uint8)
    codes = [
        np.random.default_rng(9 + side).integers(125, 130, (rows, 4)).astype(np.uint8)
        for side, rows in enumerate((128, 64))
    ]
    layout = scale_smem_layout()
    words = []
    for side, code in enumerate(codes):
        for row in range(code.shape[0]):
            for k in range(4):
                bytes_[512 * side + int(layout((row % 32, row // 32), (0, k)))] = code[row, k]
        words.append(MatrixDescriptor("sm_100a", 65536 - 1024 + 512 * side, 16, 128, "none").encode())
    issue = scaled("mxf8f6f4", "", 1, MX8, 0, 0)
    copies = " ".join(
        copy.format(column=column, word=word) for column, word in zip((SCALE_A, SCALE_B), words, strict=True)
    )
    case = Case("mxf8f6f4", 128, 64, "e4m3", issue=f"{copies} {issue}", options=(("scale", "ue8m0"),))
    before = pattern()
    for seed in range(4):
        a, b, after = run_case(case, before, 4, seed=seed, tail=bytes_)
        values = [
            operand.astype(np.float32).astype(np.float64) * np.repeat(factors(code, "ue8m0"), 32, axis=1)
            for operand, code in zip((a, b), codes, strict=True)
        ]
        wanted = expect(case, before, values[0] @ values[1].T)
        assert (after[..., :64] == wanted[..., :64]).all()
        for column, side, groups in ((SCALE_A, 0, 4), (SCALE_B, 1, 2)):
            copied = after[0, :, column : column + groups].copy().view(np.uint8).reshape(4, 32, groups, 4)
            assert (copied == codes[side].reshape(groups, 32, 4).transpose(1, 0, 2)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[%5]", "[%6 + 126]"), "columns 510"),
        (('"r"(slot + 256 + 0)', '"r"(slot + 256 + 65536)'), "begin at lane 0"),
        (('"r"(slot + 256 + 0)', '"r"(slot + 1)'), "differ between the quarters"),
        (("(i << 29) + (i << 4)", "1u << 23"), "problem|scale|not defined"),
    ],
)
def test_misplaced_scale_factors_are_refused(change: tuple[str, str], message: str) -> None:
    case = CASES["mxf8f6f4 e4m3"][0]
    issue = case.issue.replace(*change)
    assert issue != case.issue
    noise = np.random.default_rng(8).integers(0, 1 << 32, (1, 128, 512), np.uint32)
    with pytest.raises(EmulationError, match=message):
        run_case(Case(**{**case.__dict__, "issue": issue, "options": (("scale", "ue8m0"),)}), noise, 1)


def stationary(kind: str) -> str:
    return (
        'ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\n'
        f'tcgen05.mma.ws.cta_group::1.kind::{kind}.collector::b0::discard [%0], %1, %2, %3, p;\\n}}"'
        ' :: "r"(slot), "l"(a[i] + base), "l"(b[i] + base), "r"(idesc), "r"((u32)(i > 0)) : "memory")'
    )


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize(
    ("kind", "dtype", "d"),
    [("f16", "bf16", "f32"), ("tf32", "tf32", "f32"), ("f8f6f4", "e4m3", "f16"), ("i8", "s8", "s32")],
)
def test_weight_stationary_products(m: int, kind: str, dtype: str, d: str) -> None:
    case = Case(kind, m, 64 if m != 32 else 128, dtype, d=d, ws=True, issue=stationary(kind))
    before = pattern()
    a, b, after = run_case(case, before)
    assert (after == expect(case, before, exact(a, b))).all()


def through(buffer: str, first: str, later: str, b: str = "b[0]", word: str = "") -> str:
    """ISSUE of products that all take B (.ws) or A from one buffer: the first fills it, each has an accumulator of its own."""
    ws, operands = (".ws", f"a[i], {b}") if buffer[0] == "b" else ("", "a[0], b[i]")
    a, b = (f'"l"({one} + base)' for one in operands.split(", "))
    use = f"{ws}.cta_group::1.kind::f16.collector::{buffer}::"
    text = 'ASM("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\ntcgen05.mma{use} [%0], %1, %2, %3, p;\\n}}" :: "r"(slot + 64 * i), {a}, {b}, "r"(idesc), "r"(0) : "memory")'
    each = [text.format(use=use + one, a=a, b=b) for one in (first, later)]
    return f"if (i == 0) {{ {each[0]}; }} else {each[1]}"


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("buffer", ["a", "b0", "b3"])
def test_operands_are_taken_from_a_collector_buffer(buffer: str, seed: int) -> None:
    case = Case("f16", 128, 64, "bf16", ws=buffer != "a", issue=through(buffer, "fill", "use"))
    before = pattern()
    a, b, after = run_case(case, before, steps=3, seed=seed)
    for i in range(3):
        part = slice(16 * i, 16 * i + 16)
        pair = (a[:, :16], b[:, part]) if buffer == "a" else (a[:, part], b[:, :16])
        before = expect(Case("f16", 128, 64, "bf16", column=64 * i), before, exact(*pair))
    assert (after == before).all()


@pytest.mark.parametrize(
    ("first", "later", "b", "message"),
    [
        ("discard", "use", "b[0]", "no instruction before it has filled"),
        ("fill", "lastuse", "b[0]", "no instruction before it has filled"),
        ("fill", "use", "b[i]", "not what the buffer was filled with"),
    ],
)
def test_a_buffer_that_does_not_hold_the_operand_is_refused(first: str, later: str, b: str, message: str) -> None:
    case = Case("f16", 128, 64, "bf16", ws=True, issue=through("b1", first, later, b))
    with pytest.raises(EmulationError, match=message):
        run_case(case, pattern(), steps=3)
