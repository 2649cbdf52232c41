"""GEMMs of our own in Triton, compiled by Triton with no GPU. D (M, N) = A (M, K) times B (N, K) transposed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from stridewright.codegen.emulator import EmulationResult, TensorMapArgument, emulate_ptx
from stridewright.layout.hardware import TensorMap


@triton.jit
def pointers(
    a, b, d, m, n, k, a_pitch, b_pitch, d_pitch, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Masked loads through pointers: cp.async, ldmatrix-free wgmma, masked stores."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + rows[:, None] * a_pitch + depth[None, :], mask=(rows[:, None] < m) & (depth[None, :] < k), other=0.0
        )
        right = tl.load(
            b + columns[None, :] * b_pitch + depth[:, None],
            mask=(columns[None, :] < n) & (depth[:, None] < k),
            other=0.0,
        )
        sums = tl.dot(left, right, sums)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(d + rows[:, None] * d_pitch + columns[None, :], sums.to(d.dtype.element_ty), mask=inside)


@triton.jit
def descriptors(
    a, b, d, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPECIALIZE: tl.constexpr
):
    """Tensor maps made by the host, TMA in and out; SPECIALIZE gives loads and products warps of their own."""
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, k, BLOCK_K, warp_specialize=SPECIALIZE):
        left = a.load([row, start])
        right = b.load([column, start])
        sums = tl.dot(left, right.T, sums)
    d.store([row, column], sums.to(d.dtype))


@triton.jit
def row_times_row(
    a, b, d, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPECIALIZE: tl.constexpr
):
    """As `descriptors`, but B is stored (K, N): an MN-major operand."""
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, k, BLOCK_K, warp_specialize=SPECIALIZE):
        left = a.load([row, start])
        right = b.load([start, column])
        sums = tl.dot(left, right, sums)
    d.store([row, column], sums.to(d.dtype))


@triton.jit
def device_descriptors(
    a, b, d, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCKS: tl.constexpr
):
    """Tensor maps that each block makes for itself in scratch memory (tensormap.replace); persistent blocks."""
    a_map = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b_map = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    d_map = tl.make_tensor_descriptor(d, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    rows = tl.cdiv(m, BLOCK_M)
    for tile in tl.range(tl.program_id(0), rows * tl.cdiv(n, BLOCK_N), BLOCKS, flatten=True):
        row = tile % rows * BLOCK_M
        column = tile // rows * BLOCK_N
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            sums = tl.dot(a_map.load([row, start]), b_map.load([column, start]).T, sums)
        d_map.store([row, column], sums.to(d_map.dtype))


_NAMES = {"bf16": "bf16", "f16": "fp16", "f32": "fp32", "e4m3": "fp8e4nv"}
PERSISTENT = 2
"""Programs of a persistent kernel: fewer than tiles, so that each does several."""

_SWIZZLES = ("none", "32B", "64B", "128B")


@dataclass(frozen=True)
class TritonGemm:
    """One compiled Triton kernel."""

    function: Any
    dtype: str
    d_dtype: str
    tile: tuple[int, int, int]
    compiled: Any

    @property
    def by_descriptors(self) -> bool:
        return self.function in (descriptors, row_times_row)

    def emulate(
        self, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], edit: Callable[[str], str] = str, **options: Any
    ) -> EmulationResult:
        """Runs it on the emulator, after `edit` of its PTX. `b` is stored as the kernel wants it."""
        metadata = self.compiled.metadata
        (m, n), k = d.shape, a.shape[1]
        arguments: list[Any]
        if self.by_descriptors:
            dtypes = (self.dtype, self.dtype, self.d_dtype)
            described = zip((a, b, d), dtypes, metadata.tensordesc_meta, strict=True)
            arguments = [item for operand in described for item in _descriptor(*operand)]
            arguments.append(np.int32(k))
        else:
            pitches = [np.int32(x.strides[0] // x.itemsize) for x in (a, b, d)] if self.function is pointers else []
            arguments = [a, b, d, np.int32(m), np.int32(n), np.int32(k), *pitches]
        if self.function is device_descriptors:
            programs = (PERSISTENT, 1)
        else:
            programs = (-(-m // self.tile[0]), -(-n // self.tile[1]))
        # Triton adds two pointers: scratch memory for its own use, so many bytes a program, and for a profiler.
        assert metadata.profile_scratch_size == 0
        scratch = np.zeros(programs[0] * programs[1] * metadata.global_scratch_size, np.uint8)
        return emulate_ptx(
            edit(self.compiled.asm["ptx"]),
            metadata.name,
            # A program of several blocks is a cluster along x.
            (programs[0] * metadata.num_ctas, programs[1]),
            32 * metadata.num_warps,
            [*arguments, scratch if scratch.size else None, None],
            cluster=metadata.num_ctas,
            shared=metadata.shared,
            **options,
        )


def _descriptor(array: NDArray[Any], dtype: str, kind: Mapping[str, Any]) -> list[Any]:
    """A host-side descriptor is five parameters: the tensor map, then sizes and strides in elements, outermost first."""
    tensor_map = TensorMap(
        dtype,
        array.shape[::-1],
        array.strides[-2::-1],
        tuple(kind["block_size"][::-1]),
        _SWIZZLES[kind["swizzle"]],
    )
    strides = [np.int64(stride // array.itemsize) for stride in array.strides]
    return [TensorMapArgument(tensor_map, array), *map(np.int32, array.shape), *strides]


def compile_triton(
    function: Any,
    tile: tuple[int, int, int],
    dtype: str = "bf16",
    d_dtype: str = "bf16",
    specialize: bool = False,
    warps: int = 4,
    stages: int = 3,
    blocks: int = 1,
    arch: str = "sm_90a",
) -> TritonGemm:
    """Compiles one of the kernels above for an architecture; Triton chooses the instructions (wgmma, tcgen05) by it."""
    m, n, k = tile
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    attributes: dict[tuple[int, ...], Sequence[Any]] = {}
    if function in (pointers, device_descriptors):
        operands = {"a": f"*{_NAMES[dtype]}", "b": f"*{_NAMES[dtype]}", "d": f"*{_NAMES[d_dtype]}"}
        numbers = ("m", "n", "k", "a_pitch", "b_pitch", "d_pitch") if function is pointers else ("m", "n", "k")
        # What Triton learns from the arguments at a call: pointers and row pitches that are multiples of 16.
        attributes = {(i,): [["tt.divisibility", 16]] for i in (0, 1, 2, 6, 7) if i < 3 + len(numbers)}
        if function is device_descriptors:
            constants["BLOCKS"] = PERSISTENT
    else:
        b_box = (k, n) if function is row_times_row else (n, k)
        boxes = {"a": (dtype, (m, k)), "b": (dtype, b_box), "d": (d_dtype, (m, n))}
        operands = {name: f"tensordesc<{_NAMES[kind]}[{box[0]},{box[1]}]>" for name, (kind, box) in boxes.items()}
        numbers = ("k",)
        constants["SPECIALIZE"] = specialize
    signature = operands | dict.fromkeys(numbers, "i32") | dict.fromkeys(constants, "constexpr")
    source = ASTSource(function, signature=signature, constexprs=constants, attrs=attributes)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", int(arch.removeprefix("sm_").rstrip("a")), 32),
        options={"num_warps": warps, "num_stages": stages, "num_ctas": blocks},
    )
    return TritonGemm(function, dtype, d_dtype, tile, compiled)
