"""One self-contained CUDA source from a configuration.

The hand-written files of ``kernels/cuda`` are put together in the order in which they include one another; between
the instruction wrappers and the rest stand the constants and the address functions that the layouts of this
configuration give, each under a comment naming its layout. No control flow is made here: the one function written out
is the wgmma wrapper, whose operand list depends on the tile's N.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

from stridewright.kernels.config import GemmConfig
from stridewright.kernels.fusion import Fusion
from stridewright.kernels.hopper import AddressFunction, Constant, Derivation, OperandTile, Step, derive
from stridewright.kernels.hopper_rules import kernel_operands, uses_terms
from stridewright.layout.expression import cpp_expression
from stridewright.layout.hardware import TensorMap
from stridewright.layout.hardware.dtypes import data_type

KERNEL_NAME = "stridewright_gemm"
"""The kernel's extern "C" name in every generated source."""

_INCLUDE = re.compile(r'^#include "([^"]+)"$')
_EPILOGUES = {"tma": "epilogue_tma.cuh", "direct": "epilogue_direct.cuh", "tma swapped": "epilogue_tma_swapped.cuh"}


@lru_cache(maxsize=64)
def generate(config: GemmConfig) -> str:
    """The source of ``config``'s kernel: no #include, compiles as it stands for ``config.arch``.

    Raises :class:`~stridewright.kernels.config.ConfigError` if the configuration is not valid.

    >>> generate(GemmConfig()).splitlines()[0][:60]
    '// sm_90a_bf16_cooperative2_128x256x64_stages4_group8_tma2: '
    """
    derivation = derive(config)
    before = _assemble(["ptx.cuh"], set())
    taken = {name for name, _ in before}
    parts = [_header(derivation)]
    parts += [text for _, text in before]
    parts += [_step_source(step) for step in derivation.steps]
    parts.append(_cluster_attribute(config))
    parts.append(wgmma_wrapper(config.tile.n, *kernel_operands(config)))
    if uses_terms(config):
        parts.append(_activated(config.fusion, taken))
    parts += [text for _, text in _assemble(_variants(config), taken)]
    return "\n".join(parts)


def _variants(config: GemmConfig) -> list[str]:
    """The files that differ between kernels, in the order in which the source has them, and the kernel."""
    store, terms = config.epilogue.store, uses_terms(config)
    epilogue = _EPILOGUES["tma swapped" if config.schedule.swap and store == "tma" else store]
    if config.fusion.gated:
        epilogue = "epilogue_gated.cuh"
    multiply = "multiply_promoted.cuh" if config.pipeline.promote else "multiply.cuh"
    if config.pipeline.accumulators > 1:
        multiply = "multiply_overlapped.cuh"
    if config.problem.form == "groups_k":
        multiply = "multiply_groups.cuh"
    return [
        "finish.cuh" if terms else "finish_none.cuh",
        epilogue,
        "whole_tiles.cuh" if config.split.kind == "none" else "partial_sums.cuh",
        multiply,
        "kernel_terms.cuh" if terms else "kernel_plain.cuh",
    ]


def _activated(fusion: Fusion, taken: set[str]) -> str:
    """The function that finishes a sum: an activation, or the user's expression, whose words were checked."""
    expression = fusion.expression or ("x" if fusion.activation == "none" else f"{fusion.activation}(x)")
    activations = _assemble(["activations.cuh"], taken)[-1][1]
    return (
        activations
        + f"""
// ======== what is applied to a sum ====================================================================================
// x is alpha * acc + beta * c + bias; row and col are those of D.
DEVICE float activated(float acc, float c, float bias, float alpha, float beta, float x, uint32 row, uint32 col) {{
    return {expression};
}}
"""
    )


def _assemble(names: list[str], taken: set[str]) -> list[tuple[str, str]]:
    """(file, text) of these device files and what they include, each once and after what it needs."""
    found: list[tuple[str, str]] = []
    for name in names:
        if name in taken:
            continue
        taken.add(name)
        kept = []
        for line in _device_file(name).splitlines():
            include = _INCLUDE.match(line)
            if include:
                found += _assemble([include[1]], taken)
            elif line != "#pragma once":
                kept.append(line)
        title = f"// ======== kernels/cuda/{name} ".ljust(118, "=")
        found.append((name, f"{title}\n" + "\n".join(kept).strip() + "\n"))
    return found


@lru_cache(maxsize=32)
def _device_file(name: str) -> str:
    return resources.files("stridewright.kernels").joinpath("cuda", name).read_text(encoding="utf-8")


def _comment(text: str) -> str:
    return f"// {text}".rstrip()


def _header(derivation: Derivation) -> str:
    config = derivation.config
    maps = derivation.tensor_maps(4096, 4096, 4096)
    types = ", ".join(dict.fromkeys(one.dtype for one in (maps.a, maps.b, maps.d) if one is not None))
    third = ", batch" if maps.d is not None and maps.d.rank == 3 else ""
    lines = [
        f"{config.name}: generated by stridewright from the layouts named below.",
        "",
        f"Compile for {config.arch}. Launch a one-dimensional grid of at most one CTA for each SM, {config.threads} threads each, with {derivation.shared_bytes} bytes of dynamic",
        f"shared memory. Tensor maps, encoded by cuTensorMapEncodeTiled and passed by value ({types}, element strides 1, no interleave, zero fill, L2 promotion 128 B):",
        f"  tensor_map_a       dims {_dims(derivation.a, 'M', maps.a)}, box {maps.a.box}, swizzle {maps.a.swizzle}",
        f"  tensor_map_b       dims {_dims(derivation.b, 'N', maps.b)}, box {maps.b.box}, swizzle {maps.b.swizzle}",
    ]
    if maps.d is not None and maps.d_tail is not None:
        lines += [
            f"  tensor_map_d       dims (N, M{third}), box {maps.d.box}, swizzle {maps.d.swizzle}",
            f"  tensor_map_d_tail  dims (N, M{third}), box {maps.d_tail.box}, swizzle {maps.d_tail.swizzle}"
            + (" (the same)" if maps.d is maps.d_tail else ""),
            "d and d_row_stride (elements) are used where results do not leave by TMA: for shared tiles, and ends of groups."
            if config.split.kind != "none" or uses_terms(config)
            else "d and d_row_stride are not used.",
        ]
    else:
        lines.append("tensor_map_d and tensor_map_d_tail are not used: pass any 128 bytes.")
    lines += _other_arguments(config)
    if uses_terms(config):
        lines.append(
            "terms is the struct Terms below, by value: what is added, scaled and applied, the number of matrices or groups."
        )
    return "\n".join(_comment(line) for line in lines) + "\n"


def _other_arguments(config: GemmConfig) -> list[str]:
    """What the kernel's last arguments are, and how it may be launched."""
    order = (
        "a uint32 table on the device, row | column << 16 of every block of tiles in turn"
        if config.schedule.order == "hilbert"
        else "not used, pass 0"
    )
    shared = "not used, pass 0"
    if config.split.kind != "none":
        held = "one tile a CTA, zero at first" if config.split.reduce == "atomic" else "two tiles a CTA of the grid"
        shared = f"float32 sums of shared tiles ({held}), two uint32 a shared tile (zero at first and left so), and how many blocks are shared"
    size = config.cluster.m * config.cluster.n
    return [
        f"order: {order}. partials, counters, shared_blocks: {shared}.",
        *([f"The grid is a multiple of {size} CTAs, a cluster."] if size > 1 else []),
        "The kernel waits for the grid before it, and only then touches memory, so it may be launched with",
        "programmatic stream serialization.",
        "",
        "In comments a layout is Shape:Stride, from coordinates to an offset, and S<B,M,S> o Shape:Stride one whose offsets are swizzled.",
    ]


def _dims(operand: OperandTile, rows: str, tensor_map: TensorMap) -> str:
    """The dimensions of an operand's tensor map in letters, innermost first."""
    letters = [rows, "K"] if operand.major == "mn" else ["K", rows]
    return f"({', '.join(letters + ['batch'] * (tensor_map.rank - 2))})"


def _cluster_attribute(config: GemmConfig) -> str:
    """The macro that makes the kernel a cluster kernel, empty for single CTAs.

    Even __cluster_dims__(1, 1, 1) changes which SM a CTA is given, which costs up to a quarter of the speed where L2
    limits (benchmarks/results).
    """
    size = config.cluster.m * config.cluster.n
    attribute = f" __cluster_dims__({size}, 1, 1)" if size > 1 else ""
    return f"#define CLUSTER_ATTRIBUTE{attribute}\n"


def _step_source(step: Step) -> str:
    lines = [f"// ======== {step.title} ".ljust(118, "=")]
    lines += [_comment(f"{what}:  {layout}") for what, layout in step.layouts]
    lines += [_comment(note) for note in step.notes]
    lines += [_constant(constant) for constant in step.constants]
    for function in step.functions:
        lines += ["", *_function(function)]
    return "\n".join(lines) + "\n"


def _constant(constant: Constant) -> str:
    value = str(constant.value)
    if constant.hexadecimal:
        value = f"{constant.value:#018x}ull" if constant.type == "uint64" else f"{constant.value:#010x}u"
    return f"constexpr {constant.type} {constant.name} = {value};"


def _function(function: AddressFunction) -> list[str]:
    parameters = ", ".join(f"uint32 {name}" for name in function.parameters)
    return [
        _comment(f"({', '.join(function.parameters)}) -> {function.unit}:  {function.layout}"),
        f"DEVICE uint32 {function.name}({parameters}) {{",
        f"    return {cpp_expression(function.layout, *function.parameters)};",
        "}",
    ]


def wgmma_wrapper(n: int, a: tuple[str, str] = ("bf16", "k"), b: tuple[str, str] = ("bf16", "k")) -> str:
    """The wrapper of ``wgmma.mma_async`` for operands of these (format, major): ``n / 2`` accumulators, float32 or of s8
    int32, are read and written.

    Source: PTX ISA, "wgmma.mma_async". Immediates 1 scale A and B (no negation), and for 16-bit types two more say which are
    MN-major; integers have none.

    >>> wgmma_wrapper(8).splitlines()[2]
    'DEVICE void wgmma(float (&d)[4], uint64 a, uint64 b, bool accumulate) {'
    """
    count, kind = n // 2, data_type(a[0])
    accumulator, letter = ("float", "f") if kind.floating else ("int32", "r")
    types = f"{'f32' if kind.floating else 's32'}.{a[0]}.{b[0]}"
    immediates = ["1", "1"] if kind.floating else []
    immediates += [str(int(major == "mn")) for _, major in (a, b)] if kind.wgmma_mn_major else []
    rows = [", ".join(f"%{i}" for i in range(first, min(first + 16, count))) for first in range(0, count, 16)]
    operands = [
        ", ".join(f'"+{letter}"(d[{i}])' for i in range(first, min(first + 8, count))) for first in range(0, count, 8)
    ]
    lines = [
        "// ======== the multiply: one instruction, generated because its operand list has TILE_N / 2 registers ".ljust(
            118, "="
        ),
        f"// d (+)= A B^T for one block of 64 x TILE_N x {kind.wgmma_k}; both operands are read from shared memory through their descriptors.",
        f"DEVICE void wgmma({accumulator} (&d)[{count}], uint64 a, uint64 b, bool accumulate) {{",
        "    asm volatile(",
        '        "{\\n"',
        '        "  .reg .pred accumulate;\\n"',
        f'        "  setp.ne.b32 accumulate, %{count + 2}, 0;\\n"',
        f'        "  wgmma.mma_async.sync.aligned.m64n{n}k{kind.wgmma_k}.{types}\\n"',
        *(
            f'        "    {"{" if i == 0 else " "}{row}{"}" if i == len(rows) - 1 else ""},\\n"'
            for i, row in enumerate(rows)
        ),
        f'        "    {", ".join((f"%{count}", f"%{count + 1}", "accumulate", *immediates))};\\n"',
        '        "}\\n"',
        *(
            f"        {': ' if i == 0 else '  '}{row}{',' if i < len(operands) - 1 else ''}"
            for i, row in enumerate(operands)
        ),
        '        : "l"(a), "l"(b), "r"(int(accumulate)));',
        "}\n",
    ]
    return "\n".join(lines)
