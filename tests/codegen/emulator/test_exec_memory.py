"""Loads, stores and atomics of every space and width, and the faults of bad addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError, StructArgument, emulate_ptx

from .harness import HEAD, run_cuda


def run(body: str, args: list[Any], threads: int = 32, **options: Any) -> Any:
    parameters = ", ".join(f".param .u64 p{n}" for n in range(len(args)))
    loads = " ".join(f"ld.param.u64 %p{n}, [p{n}];" for n in range(len(args)))
    text = (
        f"{HEAD}.visible .entry k({parameters}) {{ .reg .b64 %p<8>; .reg .b64 %d<16>; .reg .b32 %r<32>; .reg .b16 %h<16>; .reg .b32 %tid;"
        f".shared .align 16 .b8 buffer[4096]; .reg .pred %q<4>; {loads} mov.u32 %tid, %tid.x;\n{body}\nret; }}"
    )
    return emulate_ptx(text, "k", 1, threads, args, **options)


@pytest.mark.parametrize("kind", ["u8", "u16", "b32", "b64", "v2.b32", "v4.b32", "v2.b64", "v4.b16", "v4.b8"])
@pytest.mark.parametrize("through", ["global", "shared", "generic"])
def test_copies_of_every_width(kind: str, through: str) -> None:
    count = int(kind[1]) if kind[0] == "v" else 1
    width = int(kind.rsplit(".", 1)[-1][1:]) // 8
    size = count * width
    letter = {1: "h", 2: "h", 4: "r", 8: "d"}[width]
    registers = ", ".join(f"%{letter}{n}" for n in range(1, count + 1))
    group = f"{{{registers}}}" if count > 1 else registers
    source = np.random.default_rng(0).integers(0, 256, 32 * size, dtype=np.uint8)
    target = np.zeros_like(source)
    ordinary = f"ld.global.{kind} {group}, [%d10]; st.global.{kind} [%d11], {group};"
    staged = (
        f"ld.global.{kind} {group}, [%d10]; mov.u32 %r20, buffer; mad.lo.u32 %r21, %tid, {size}, %r20; st.shared.{kind} [%r21], {group};"
        f" bar.sync 0; ld.shared.{kind} {group}, [%r21]; st.global.{kind} [%d11], {group};"
    )
    generic = (
        f"ld.{kind} {group}, [%d10]; mov.u64 %d12, buffer; cvta.shared.u64 %d12, %d12; add.s64 %d12, %d12, %d15; st.{kind} [%d12], {group};"
        f" bar.sync 0; ld.{kind} {group}, [%d12]; st.{kind} [%d11], {group};"
    )
    body = {"global": ordinary, "shared": staged, "generic": generic}[through]
    run(f"mul.wide.u32 %d15, %tid, {size}; add.s64 %d10, %p0, %d15; add.s64 %d11, %p1, %d15; {body}", [source, target])
    assert np.array_equal(source, target)


def test_signed_loads_extend() -> None:
    source, target = np.array([0x80, 0x7F] * 16, np.uint8), np.zeros(32, np.int32)
    run(
        "cvt.u64.u32 %d1, %tid; add.s64 %d2, %p0, %d1; ld.global.s8 %r1, [%d2]; mul.wide.u32 %d3, %tid, 4; add.s64 %d3, %p1, %d3; st.global.u32 [%d3], %r1;",
        [source, target],
    )
    assert target.tolist() == [-128, 127] * 16


ATOMICS: list[tuple[str, str, Any, Any]] = [
    ("add.u32", "u32", lambda values: sum(values), 0),
    ("min.s32", "s32", lambda values: min(0, *values), 0),
    ("max.u32", "u32", lambda values: max(0, *values), 0),
    ("or.b32", "b32", lambda values: int(np.bitwise_or.reduce(np.array(values))), 0),
    ("xor.b32", "b32", lambda values: int(np.bitwise_xor.reduce(np.array(values))), 0),
]


@pytest.mark.parametrize(("operation", "kind", "define", "start"), ATOMICS)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_of_all_threads(operation: str, kind: str, define: Any, start: int, space: str) -> None:
    values = np.random.default_rng(1).integers(-100, 100, 64).astype(np.int32)
    if kind in ("u32", "b32"):
        values = np.abs(values)
    target = np.array([start], np.int32)
    address = "[%p1]" if space == "global" else "[buffer]"
    prepare = "" if space == "global" else "setp.eq.u32 %q1, %tid, 0; @%q1 st.shared.u32 [buffer], 0; bar.sync 0;"
    finish = "" if space == "global" else "bar.sync 0; @%q1 ld.shared.u32 %r9, [buffer]; @%q1 st.global.u32 [%p1], %r9;"
    body = f"{prepare} mul.wide.u32 %d1, %tid, 4; add.s64 %d2, %p0, %d1; ld.global.u32 %r1, [%d2];"
    run(f"{body} atom.{space}.{operation} %r2, {address}, %r1; {finish}", [values, target], 64)
    assert int(target[0]) == define(values.tolist())


def test_atomic_old_values_are_a_serial_order() -> None:
    counter, old = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    run(
        "atom.global.add.u32 %r1, [%p0], 1; mul.wide.u32 %d1, %tid, 4; add.s64 %d2, %p1, %d1; st.global.u32 [%d2], %r1;",
        [counter, old],
        64,
    )
    assert sorted(old.tolist()) == list(range(64))
    assert counter[0] == 64


def test_float_atomics_and_compare_and_swap() -> None:
    total, lock = np.zeros(1, np.float32), np.array([5], np.uint32)
    run("mov.b32 %r1, 0f3F000000; red.global.add.f32 [%p0], %r1; atom.global.cas.b32 %r2, [%p1], 5, 9;", [total, lock])
    assert (total[0], lock[0]) == (16.0, 9)


def test_local_and_constant_memory() -> None:
    source = """
    __constant__ int table[4] = {3, 1, 4, 1};
    extern "C" __global__ void k(int *out, int n) {
        int local[8];
        for (int i = 0; i < 8; ++i) local[i] = threadIdx.x * i + table[i & 3];
        int total = 0;
        for (int i = 0; i < n; ++i) total += local[(i * 3 + threadIdx.x) & 7];
        out[threadIdx.x] = total;
    }"""
    out = np.zeros(64, np.int32)
    run_cuda(source, "k", 1, 64, [out, np.int32(6)])
    table = [3, 1, 4, 1]
    expected = [sum(t * ((i * 3 + t) & 7) + table[((i * 3 + t) & 7) & 3] for i in range(6)) for t in range(64)]
    assert out.tolist() == expected


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("ld.global.u32 %r1, [%p0+128];", "out of bounds"),
        ("mul.wide.u32 %d1, %tid, 8; add.s64 %d1, %p0, %d1; st.global.u32 [%d1], %r1;", "lane 16"),
        ("ld.global.u32 %r1, [%p0+2];", "misaligned"),
        ("ld.global.v2.u32 {%r1, %r2}, [%p0+4];", "misaligned"),
        ("ld.shared.u32 %r1, [buffer];", "never written"),
        ("st.shared.u32 [buffer+4096], 1;", "out of bounds"),
        ("mov.u32 %r2, buffer; mad.lo.u32 %r2, %tid, 6, %r2; st.shared.u32 [%r2], 1;", "misaligned"),
        ("mov.u64 %d1, 0; ld.global.u32 %r1, [%d1];", "out of bounds"),
    ],
)
def test_bad_addresses_are_named(body: str, text: str) -> None:
    with pytest.raises(EmulationError, match=text) as caught:
        run(body, [np.zeros(32, np.uint32)])
    assert "PTX line" in str(caught.value)


def test_a_read_only_array_is_not_written() -> None:
    array = np.zeros(32, np.uint32)
    array.flags.writeable = False
    with pytest.raises(EmulationError, match="read-only"):
        run("st.global.u32 [%p0], 1;", [array])


def test_arguments_are_checked() -> None:
    array = np.zeros(4, np.uint32)
    text = f"{HEAD}.visible .entry k(.param .u64 p, .param .u32 n, .param .f32 f) {{ ret; }}"
    emulate_ptx(text, "k", 1, 32, [array, 7, 1.5])
    emulate_ptx(text, "k", 1, 32, [None, np.uint32(7), np.float32(1.5)])
    for args, why in [
        ([array, 7], "2 arguments for 3"),
        ([array, array, 1.5], "pointer of 8 bytes"),
        ([array, 2**33, 1.5], "does not fit"),
        ([array, np.uint64(1), 1.5], "8 bytes were given"),
        ([array, 1.5, 1.5], "width of the Python number"),
        ([array, "7", 1.5], "str is not understood"),
    ]:
        with pytest.raises(EmulationError, match=why):
            emulate_ptx(text, "k", 1, 32, args)
    for options, why in [
        ({"grid": 0}, "grid=0"),
        ({"block": 2048}, "1 to 1024"),
        ({"cluster": 2, "grid": 3}, "multiple of the cluster"),
        ({"shared": 300_000}, "shared memory"),
        ({"numerics": "exact"}, "numerics"),
    ]:
        with pytest.raises(EmulationError, match=why):
            emulate_ptx(text, "k", **{"grid": 1, "block": 32, "args": [array, 7, 1.5], **options})
    with pytest.raises(EmulationError, match="no kernel 'other'"):
        emulate_ptx(text, "other", 1, 32, [])


def test_a_struct_may_hold_pointers() -> None:
    source = """struct View { int n; int *data; };
    extern "C" __global__ void k(View v) { if (threadIdx.x < v.n) v.data[threadIdx.x] = v.n; }"""
    out = np.zeros(32, np.int32)
    run_cuda(source, "k", 1, 32, [StructArgument(np.array([7, 0, 0, 0], np.int32).tobytes(), {8: out})])
    assert out.tolist() == [7] * 7 + [0] * 25
    with pytest.raises(EmulationError, match="does not fit"):
        run_cuda(source, "k", 1, 32, [StructArgument(bytes(16), {12: out})])


def test_equal_values_stored_without_order_are_harmless_where_compilers_do_it() -> None:
    source = """extern "C" __global__ void k(int *out, int step) {
        __shared__ volatile int flag;
        flag = 7 + step * (threadIdx.x / 32);
        __syncthreads();
        out[threadIdx.x] = flag;
    }"""
    out = np.zeros(64, np.int32)
    assert [race.kind for race in run_cuda(source, "k", 1, 64, [out, np.int32(0)]).races] == ["write after write"]
    assert run_cuda(source, "k", 1, 64, [out, np.int32(0)], strict=False).races == ()
    assert out.tolist() == [7] * 64
    assert [race.kind for race in run_cuda(source, "k", 1, 64, [out, np.int32(1)], strict=False).races] == [
        "write after write"
    ]


def test_vector_reductions_are_atomic_element_by_element() -> None:
    total = np.zeros(4, np.float32)
    old = np.zeros(64, np.float32)
    run(
        "mov.b32 %r1, 0f3F800000; mov.b32 %r2, 0f40000000; red.relaxed.gpu.global.add.v4.f32 [%p0], {%r1, %r2, %r1, %r2};"
        " atom.global.add.v2.f32 {%r3, %r4}, [%p0], {%r1, %r2}; mul.wide.u32 %d1, %tid, 8; add.s64 %d1, %p1, %d1; st.global.v2.b32 [%d1], {%r3, %r4};",
        [total, old],
    )
    assert total.tolist() == [64.0, 128.0, 32.0, 64.0]
    assert sorted(old[::2].tolist()) == [32.0 + n for n in range(32)]
