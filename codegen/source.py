"""One self-contained CUDA source from a configuration.

The hand-written files of ``kernels/cuda`` are put together in the order in which they include one another; between
the instruction wrappers and the rest stand the constants and the address functions that the layouts of this
configuration give, each under a comment naming its layout. No control flow is made here: the one function written out
is the wgmma wrapper, whose operand list depends on the tile's N. What the constants make dead is left out (``specialise``),
so that what a reader sees is what runs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

from stridewright.kernels.config import GemmConfig
from stridewright.kernels.expression import in_float32
from stridewright.kernels.hopper import AddressFunction, Constant, Step, derive
from stridewright.kernels.hopper_rules import kernel_operands, uses_terms
from stridewright.layout.expression import cpp_expression
from stridewright.layout.hardware.dtypes import data_type

from .source_header import header
from .specialise import specialised

KERNEL_NAME = "stridewright_gemm"
"""The kernel's extern "C" name in every generated source."""

_INCLUDE = re.compile(r'^#include "([^"]+)"$')
_ANY_SUMS = "template <typename Sums> DEVICE void store(const Sums &accumulators,"
WIDTH = 140
"""Columns of a line of a generated source."""

_EPILOGUES = {"tma": "epilogue_tma.cuh", "direct": "epilogue_direct.cuh", "tma swapped": "epilogue_tma_swapped.cuh"}


@lru_cache(maxsize=64)
def generate(config: GemmConfig) -> str:
    """The source of ``config``'s kernel: no #include, compiles as it stands for ``config.arch``.

    Raises :class:`~stridewright.kernels.config.ConfigError` if the configuration is not valid.

    >>> generate(GemmConfig()).splitlines()[0]
    '// sm_90a_bf16_cooperative2_128x256x64_stages4_group8_tma2:'
    """
    derivation = derive(config)
    before, body = _parts(config)
    lines = f"{header(derivation)}\n{specialised(body, before)}".split("\n")
    return "\n".join(line for long in lines for line in wrapped(long))


def whole(config: GemmConfig) -> str:
    """All of the hand-written files that ``config``'s kernel is made of, with the constants between them, before what the
    constants make dead is left out (:mod:`.specialise`).

    >>> len(whole(GemmConfig())) > len(generate(GemmConfig()))
    True
    """
    return "\n".join(_parts(config))


def _parts(config: GemmConfig) -> tuple[str, str]:
    """Instructions, constants and address functions; and the files that use them."""
    derivation = derive(config)
    instructions = _assemble(["ptx.cuh"], set())
    taken = {name for name, _ in instructions}
    before = [text for _, text in instructions]
    before += [_step_source(step) for step in derivation.steps]
    before += [wgmma_wrapper(config.tile.n, *kernel_operands(config))]
    body = [_activated(config, taken)] if uses_terms(config) else []
    body += [
        text.replace("CLUSTER_ATTRIBUTE ", _cluster_attribute(config))
        for _, text in _assemble(_variants(config), taken)
    ]
    if not uses_terms(config):
        # What an epilogue stores is the sums themselves: no need for a template.
        body = [
            text.replace(_ANY_SUMS, "DEVICE void store(const Accumulator (&accumulators)[TILE_N / 2],") for text in body
        ]
    return "\n".join(before), "\n".join(body)


def wrapped(line: str) -> list[str]:
    """A line of code of at most :data:`WIDTH` columns: a longer one goes on below its first open parenthesis, or below the first of
    a constructor's initialisers.

    >>> wrapped("int x;")
    ['int x;']
    >>> [len(part) for part in wrapped("    sum(" + "first_summand, " * 10 + "last);")]
    [127, 44]
    """
    code = line.partition("//")[0]
    if len(line) <= WIDTH or not code.strip() or '"' in code:
        return [line]
    list_of_members = re.match(r" +: ", code)
    start = list_of_members.end() if list_of_members else code.find("(") + 1
    if ") : " in code:
        place = code.index(") : ") + 1
        return [*wrapped(line[:place]), *wrapped(" " * (len(line) - len(line.lstrip()) + 4) + line[place + 1 :])]
    depth, place = 0, -1
    for i in range(start, min(len(code), WIDTH)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth < 0:
            break
        if depth == 0 and code.startswith(", ", i):
            place = i + 1
    if place < 0:
        return [line]
    return [line[:place], *wrapped(" " * start + line[place + 1 :])] if start < WIDTH // 2 else [line]


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


def _activated(config: GemmConfig, taken: set[str]) -> str:
    """The function that finishes a sum: an activation, or the user's expression, whose words were checked."""
    fusion = config.fusion
    own = fusion.expression and in_float32(fusion.expression)
    expression = own or ("x" if fusion.activation == "none" else f"{_activation(config)}(x)")
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


def _activation(config: GemmConfig) -> str:
    """The activation by its name in activations.cuh: for D of 8 bits of precision or fewer one that is as accurate as that."""
    coarse = config.problem.d in ("bf16", "e4m3", "e5m2", "s8") and not config.fusion.amax
    return "gelu_coarse" if coarse and config.fusion.activation == "gelu" else config.fusion.activation


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


def _cluster_attribute(config: GemmConfig) -> str:
    """What makes the kernel a cluster kernel, nothing for single CTAs.

    Even __cluster_dims__(1, 1, 1) changes which SM a CTA is given, which costs up to a quarter of the speed where L2
    limits (benchmarks/results).
    """
    size = config.cluster.m * config.cluster.n
    return f"__cluster_dims__({size}, 1, 1) " if size > 1 else ""


def _step_source(step: Step) -> str:
    lines = [f"// ======== {step.title} ".ljust(118, "=")]
    lines += [_comment(f"{what}:  {layout}") for what, layout in step.layouts]
    lines += [_comment(note) for note in step.notes if not step.in_head]
    spelled = [_constant(constant) for constant in step.constants]
    width = max((len(one) for one in spelled), default=0) + 4
    lines += [
        one.ljust(width) + f"// {constant.note}" if constant.note else one
        for one, constant in zip(spelled, step.constants, strict=True)
    ]
    for function in step.functions:
        lines += ["", *_function(function)]
    return "\n".join(lines) + "\n"


def _constant(constant: Constant) -> str:
    value = str(constant.value)
    if constant.hexadecimal:
        value = f"{constant.value:#018x}ull" if constant.type == "uint64" else f"{constant.value:#010x}u"
    elif constant.type == "bool":
        value = str(bool(constant.value)).lower()
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

    >>> wgmma_wrapper(8).splitlines()[3]
    'DEVICE void wgmma(float (&d)[4], uint64 a, uint64 b, bool accumulate) {'
    """
    count, kind = n // 2, data_type(a[0])
    accumulator, letter = ("float", "f") if kind.floating else ("int32", "r")
    types = f"{'f32' if kind.floating else 's32'}.{a[0]}.{b[0]}"
    immediates = ["1", "1"] if kind.floating else []
    immediates += [str(int(major == "mn")) for _, major in (a, b)] if kind.wgmma_mn_major else []
    words = "neither A nor B is negated (1, 1)" if kind.floating else "none"
    if kind.wgmma_mn_major:
        words += f"; whether A is MN-major ({immediates[2]}), and B ({immediates[3]})"
    rows = [", ".join(f"%{i}" for i in range(first, min(first + 16, count))) for first in range(0, count, 16)]
    operands = [
        ", ".join(f'"+{letter}"(d[{i}])' for i in range(first, min(first + 8, count))) for first in range(0, count, 8)
    ]
    lines = [
        "// ======== the multiply: one instruction, generated because its operand list has TILE_N / 2 registers ".ljust(
            118, "="
        ),
        f"// d (+)= A B^T: 64 x TILE_N sums over {kind.wgmma_k} elements of K. Both operands are read from shared memory through their descriptors.",
        f"// The words behind `accumulate`: {words}.",
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
