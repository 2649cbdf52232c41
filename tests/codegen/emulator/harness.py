"""Runs single PTX instructions and small CUDA kernels on the emulator, for the tests beside this file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright.codegen import nvrtc
from stridewright.codegen.emulator import EmulationResult, emulate_ptx

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
UNSIGNED: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_LETTER = {16: "h", 32: "r", 64: "d"}


def instruction_kernel(body: str, widths: Sequence[int], out: int, uniform: bool, count: int) -> str:
    """A kernel in which each thread loads a, b, c .. (of `widths` bits), executes `body`, and stores d (of `out` bits).

    `{a}`, `{b}`, `{c}`, `{e}` in the body name the inputs, `{d}` the result. With `uniform` all threads load element 0 through an address that
    does not depend on the thread, so that registers stay uniform.
    """
    names = "abcefghijk"[: len(widths)]
    parameters = ", ".join(f".param .u64 p{n}" for n in range(len(widths) + 1))
    lines = [
        ".reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .pred %p<8>; .reg .b64 %at, %base, %t64; .reg .b32 %tid;",
        "mov.u32 %tid, %tid.x;",
    ]
    registers = {}
    for number, (name, width) in enumerate(zip(names, widths, strict=True)):
        register = f"%{_LETTER[max(width, 16)]}{number + 1}"
        registers[name] = register
        lines.append(f"ld.param.u64 %base, [p{number + 1}];")
        if uniform:
            lines.append("mov.b64 %at, %base;")
        else:
            lines.append(f"mul.wide.u32 %t64, %tid, {width // 8}; add.s64 %at, %base, %t64;")
        lines.append(f"ld.global.{'u8' if width == 8 else f'b{width}'} {register}, [%at];")
    registers["d"] = f"%{_LETTER[max(out, 16)]}30"
    lines.append(body.format(**registers))
    lines.append(f"ld.param.u64 %base, [p0]; mul.wide.u32 %t64, %tid, {out // 8}; add.s64 %at, %base, %t64;")
    lines.append(f"st.global.{'u8' if out == 8 else f'b{out}'} [%at], {registers['d']};")
    lines.append("ret;")
    return f"{HEAD}.visible .entry k({parameters}) {{\n" + "\n".join(lines) + "\n}\n"


def execute(
    body: str, inputs: Sequence[NDArray[Any]], out: int = 32, uniform: bool = False, **options: Any
) -> NDArray[Any]:
    """The results of `body` for every element of the inputs (unsigned arrays of equal length, one thread each)."""
    widths = [array.dtype.itemsize * 8 for array in inputs]
    if uniform:
        results = []
        for position in range(len(inputs[0])):
            one = [np.ascontiguousarray(array[position : position + 1]) for array in inputs]
            result = np.zeros(32, UNSIGNED[out])
            emulate_ptx(instruction_kernel(body, widths, out, True, 32), "k", 1, 32, [result, *one], **options)
            assert (result == result[0]).all()
            results.append(result[0])
        return np.array(results, UNSIGNED[out])
    count = len(inputs[0])
    result = np.zeros(count, UNSIGNED[out])
    emulate_ptx(instruction_kernel(body, widths, out, False, count), "k", 1, count, [result, *inputs], **options)
    return result


def check(body: str, function: Callable[..., int], inputs: Sequence[NDArray[Any]], out: int = 32) -> None:
    """Holds an instruction against a definition on Python ints, with varying and with uniform registers."""
    mask = (1 << out) - 1
    expected = [function(*(int(array[i]) for array in inputs)) & mask for i in range(len(inputs[0]))]
    got = execute(body, inputs, out)
    for position, (want, have) in enumerate(zip(expected, got.tolist(), strict=True)):
        assert have == want, (
            f"{body}: {[hex(int(array[position])) for array in inputs]} -> {have:#x}, expected {want:#x}"
        )
    few = [array[:12] for array in inputs]
    assert execute(body, few, out, uniform=True).tolist() == expected[:12], f"{body} with uniform registers"


def numbers(width: int, count: int = 64, seed: int = 0) -> NDArray[Any]:
    """Random bits with the corner cases first."""
    corners = [
        0,
        1,
        2**width - 1,
        2 ** (width - 1),
        2 ** (width - 1) - 1,
        2,
        7,
        2**width - 7,
        width,
        width - 1,
        width + 1,
        0x55 % 2**width,
    ]
    random = np.random.default_rng(seed + width)
    rest = [int.from_bytes(random.bytes(width // 8), "little") >> int(random.integers(0, width)) for _ in range(count)]
    order = np.array((corners + rest)[:count], dtype=object)
    # Another order for another seed: corner cases of different operands must meet.
    order[:12] = order[np.roll(np.arange(12), seed * 5)]
    return order.astype(UNSIGNED[width])


@functools.cache
def compile_cuda(source: str, options: tuple[str, ...] = ("-lineinfo",)) -> str:
    """The PTX of a CUDA source; its first lines are shared helpers."""
    return nvrtc.compile(source, "sm_90a", options, "test.cu").ptx


def run_cuda(source: str, kernel: str, grid: Any, block: Any, args: Sequence[Any], **options: Any) -> EmulationResult:
    """Compiles and emulates."""
    return emulate_ptx(compile_cuda(source), kernel, grid, block, args, **options)
