"""Every operation and type of atom and red against its definition in PTX: the new value, and the old one that atom returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import UnsupportedInstruction, emulate_ptx

from .harness import HEAD, UNSIGNED, numbers

Array = NDArray[Any]
LANES = 64


def kernel(statement: str, bytes_of: int, operands: int) -> str:
    """Each thread has an element of its own in every array: the memory, the operands, and what atom returns.

    In the statement `[%m]` is the memory, `%x0`, `%x1` are addresses of the operands and `[%o]` takes the old value.
    """
    names = ["m", "o", *(f"x{n}" for n in range(operands))]
    lines = [
        ".reg .b64 %t, %p; .reg .b32 %tid; .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .b64 %d<20>;",
        "mov.u32 %tid, %tid.x;",
    ]
    lines += [f".reg .b64 %{name};" for name in names]
    for position, name in enumerate(names):
        lines.append(f"ld.param.u64 %p, [p{position}]; mul.wide.u32 %t, %tid, {bytes_of}; add.s64 %{name}, %p, %t;")
    parameters = ", ".join(f".param .u64 p{position}" for position in range(len(names)))
    return f"{HEAD}.visible .entry k({parameters}) {{\n" + "\n".join([*lines, statement, "ret;"]) + "\n}\n"


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


INTEGERS: dict[str, Callable[..., int]] = {
    "add": lambda old, b, bits, kind: old + b,
    "min": lambda old, b, bits, kind: min((old, b), key=lambda x: signed(x, bits) if kind == "s" else x),
    "max": lambda old, b, bits, kind: max((old, b), key=lambda x: signed(x, bits) if kind == "s" else x),
    "and": lambda old, b, bits, kind: old & b,
    "or": lambda old, b, bits, kind: old | b,
    "xor": lambda old, b, bits, kind: old ^ b,
    "exch": lambda old, b, bits, kind: b,
    "inc": lambda old, b, bits, kind: 0 if old >= b else old + 1,
    "dec": lambda old, b, bits, kind: b if old == 0 or old > b else old - 1,
}
FORMS = [
    (operation, kind)
    for operation in INTEGERS
    for kind in (("b32", "b64") if operation in ("and", "or", "xor", "exch") else ("u32",) if operation in ("inc", "dec") else ("u32", "s32", "u64", "s64"))
]  # fmt: skip


@pytest.mark.parametrize(("operation", "kind"), FORMS)
def test_integers(operation: str, kind: str) -> None:
    bits = int(kind[1:])
    letter = "r" if bits == 32 else "d"
    memory, operand = numbers(bits, LANES, 1), numbers(bits, LANES, 4)
    want = [
        INTEGERS[operation](int(old), int(b), bits, kind[0]) % (1 << bits)
        for old, b in zip(memory, operand, strict=True)
    ]
    old = np.zeros(LANES, UNSIGNED[bits])
    load = f"ld.global.b{bits} %{letter}1, [%x0];"
    text = f"{load} atom.global.{operation}.{kind} %{letter}2, [%m], %{letter}1; st.global.b{bits} [%o], %{letter}2;"
    held = memory.copy()
    emulate_ptx(kernel(text, bits // 8, 1), "k", 1, LANES, [held, old, operand])
    assert held.tolist() == want
    assert old.tolist() == memory.tolist()
    if operation != "exch":  # there is no red.exch
        held = memory.copy()
        text = f"{load} red.relaxed.gpu.{operation}.{kind} [%m], %{letter}1;"
        emulate_ptx(kernel(text, bits // 8, 1), "k", 1, LANES, [held, old, operand])
        assert held.tolist() == want


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap(bits: int) -> None:
    letter = {16: "h", 32: "r", 64: "d"}[bits]
    memory, new = numbers(bits, LANES, 1), numbers(bits, LANES, 2)
    expected = np.where(np.arange(LANES) % 3 == 0, memory, memory ^ memory.dtype.type(1))
    old, held = np.zeros(LANES, UNSIGNED[bits]), memory.copy()
    text = (
        f"ld.global.b{bits} %{letter}1, [%x0]; ld.global.b{bits} %{letter}2, [%x1];"
        f" atom.global.acq_rel.gpu.cas.b{bits} %{letter}3, [%m], %{letter}1, %{letter}2; st.global.b{bits} [%o], %{letter}3;"
    ).replace("global.acq_rel.gpu", "acq_rel.gpu.global")
    emulate_ptx(kernel(text, bits // 8, 2), "k", 1, LANES, [held, old, expected, new])
    assert old.tolist() == memory.tolist()
    assert held.tolist() == np.where(np.arange(LANES) % 3 == 0, new, memory).tolist()


FLOATS: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f16x2": np.float16,
    "bf16x2": ml_dtypes.bfloat16,
}


def floats(kind: str, count: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(count).astype(FLOATS[kind])


def rounded_sum(a: Array, b: Array) -> Array:
    """The exact sum, rounded once."""
    if a.dtype == np.float64:
        return np.asarray(a + b)
    return np.asarray((a.astype(np.float64) + b.astype(np.float64)).astype(a.dtype))


@pytest.mark.parametrize("kind", FLOATS)
def test_float_sums(kind: str) -> None:
    pairs = 2 if kind.endswith("x2") else 1
    memory, operand = floats(kind, LANES * pairs, 1), floats(kind, LANES * pairs, 2)
    size = memory.itemsize * pairs
    letter = {2: "h", 4: "r", 8: "d"}[size]
    rounding = ".noftz" if "16" in kind else ""
    old, held = np.zeros(LANES, UNSIGNED[8 * size]), memory.copy()
    text = (
        f"ld.global.b{8 * size} %{letter}1, [%x0]; atom.global.add{rounding}.{kind} %{letter}2, [%m], %{letter}1;"
        f" st.global.b{8 * size} [%o], %{letter}2;"
    )
    emulate_ptx(kernel(text, size, 1), "k", 1, LANES, [held, old, operand])
    bits = UNSIGNED[8 * memory.itemsize]
    assert held.view(bits).tolist() == rounded_sum(memory, operand).view(bits).tolist()
    assert old.view(bits).tolist() == memory.view(bits).tolist()


VECTORS = [
    ("f32", 2, "add"),
    ("f32", 4, "add"),
    *((kind, count, operation) for kind in ("f16", "bf16") for count in (2, 4, 8) for operation in ("add", "min", "max")),
    *((kind, count, operation) for kind in ("f16x2", "bf16x2") for count in (2, 4) for operation in ("add", "min")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "count", "operation"), VECTORS)
def test_vectors(kind: str, count: int, operation: str) -> None:
    pairs = 2 if kind.endswith("x2") else 1
    memory, operand = floats(kind, LANES * count * pairs, 1), floats(kind, LANES * count * pairs, 2)
    size = memory.itemsize * pairs
    letter = "h" if size == 2 else "r"
    define = {"add": rounded_sum, "min": np.minimum, "max": np.maximum}[operation]
    want = define(memory, operand).view(np.uint8).tolist()
    load = "".join(f"ld.global.b{8 * size} %{letter}{n}, [%x0+{n * size}];" for n in range(count))
    given, taken = (", ".join(f"%{letter}{first + n}" for n in range(count)) for first in (0, count))
    store = "".join(f"st.global.b{8 * size} [%o+{n * size}], %{letter}{count + n};" for n in range(count))
    rounding = ".noftz" if "16" in kind else ""
    form = f"relaxed.gpu.global.{operation}{rounding}.v{count}.{kind}"
    held, old = memory.copy(), np.zeros_like(memory)
    text = f"{load} atom.{form} {{{taken}}}, [%m], {{{given}}}; {store}"
    emulate_ptx(kernel(text, size * count, 1), "k", 1, LANES, [held, old, operand])
    assert held.view(np.uint8).tolist() == want
    assert old.view(np.uint8).tolist() == memory.view(np.uint8).tolist()
    held = memory.copy()
    text = f"{load} .reg .b64 %c; createpolicy.fractional.L2::evict_first.b64 %c, 1.0; red.{form.replace(f'.v{count}', f'.L2::cache_hint.v{count}')} [%m], {{{given}}}, %c;"
    emulate_ptx(kernel(text, size * count, 1), "k", 1, LANES, [held, old, operand])
    assert held.view(np.uint8).tolist() == want


def test_orders_and_scopes() -> None:
    for scope in ("", ".cta", ".cluster", ".gpu", ".sys"):
        for order in ("", ".relaxed", ".acquire", ".release", ".acq_rel"):
            for space in ("", ".global"):
                total = np.arange(LANES, dtype=np.uint32)
                emulate_ptx(
                    kernel(f"atom{order}{scope}{space}.add.u32 %r1, [%m], 5;", 4, 0), "k", 1, LANES, [total, total]
                )
                assert total.tolist() == [n + 5 for n in range(LANES)]


def test_forms_that_do_not_exist_are_refused() -> None:
    for text in (
        "atom.global.add.b32 %r1, [%m], 5;",
        "atom.global.inc.u64 %d1, [%m], 5;",
        "atom.global.xor.u32 %r1, [%m], 5;",
        "atom.global.min.f32 %r1, [%m], 0f00000000;",
        "atom.global.add.v2.u32 {%r1, %r2}, [%m], {%r3, %r4};",
        "atom.global.min.v2.f32 {%r1, %r2}, [%m], {%r3, %r4};",
        "atom.global.add.v8.f32 {%r1, %r2}, [%m], {%r3, %r4};",
        "atom.global.cas.b32 %r1, [%m], 5;",
        "atom.global.exch.b128 %d1, [%m], %d2;",
        "red.async.relaxed.cluster.global.add.u32 [%m], 5;",
    ):
        with pytest.raises(UnsupportedInstruction):
            emulate_ptx(kernel(text, 8, 0), "k", 1, 1, [np.zeros(2, np.uint64)] * 2)
