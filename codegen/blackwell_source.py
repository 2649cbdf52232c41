"""One self-contained CUDA source from a Blackwell configuration or a rung of the ladder.

As for Hopper (:mod:`.source`): the hand-written files of ``kernels/cuda/blackwell`` in the order in which they need one
another, and between the instruction wrappers and the rest the constants and address functions that the layouts give. A
part with alternatives (one CTA or a pair, the order of tiles, who hands them out, the epilogue) is a file that is taken
or left; no control flow is made here. The one function written out is the wrapper of tcgen05.ld, whose operand list
depends on the number of registers.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from functools import lru_cache
from importlib import resources

from stridewright.kernels.blackwell import Derivation, Fragment, derive
from stridewright.kernels.blackwell_ladder import Rung
from stridewright.kernels.blackwell_rules import cluster_ctas, uses_terms
from stridewright.kernels.blackwell_scales import multiply_words, scaled_types
from stridewright.kernels.blackwell_types import converts
from stridewright.kernels.config import GemmConfig
from stridewright.layout.hardware.dtypes import data_type

from .source import _INCLUDE, _activated, _comment, _step_source

_FOLDER = "blackwell/"
_TITLE = "// ========"
_SECTION = "// ----"
_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"//[^\n]*")
_CONSTANT = re.compile(r"constexpr \w+ (\w+) = ")
_DEFINED = re.compile(
    r"^(?:template <[^>]*> )?DEVICE [^(;=]*?(\w+)\(|^struct (?:alignas\(\d+\) )?(\w+)|^using (\w+)", re.M
)
_BEFORE = "blackwell/tcgen05.cuh"


@lru_cache(maxsize=64)
def generate(config: GemmConfig, rung: Rung | None = None) -> str:
    """The source of ``config``'s kernel, or of a rung of the ladder: no #include, compiles as it stands.

    Raises :class:`~stridewright.kernels.config.ConfigError` if the configuration is not valid.

    >>> generate(GemmConfig(arch="sm_100a")).splitlines()[0][:50]
    '// sm_100a_bf16_128x256x64_stages4_acc1_static_gro'
    """
    derivation = derive(config, rung.swizzle, rung.threads) if rung else derive(config)
    taken: set[str] = set()
    blocks = _assemble([_BEFORE], taken)
    blocks += [block for step in derivation.steps for block in _blocks(_step_source(step))]
    blocks.append(
        f"#define CLUSTER_ATTRIBUTE{f' __cluster_dims__({cluster}, 1, 1)' if (cluster := cluster_ctas(config)) > 1 else ''}"
    )
    blocks.append(f'#define MULTIPLY_KIND "kind::{derivation.kind}{multiply_words(config.problem)}"')
    if not config.cluster.pair:
        blocks.append(f'#define MULTIPLY_FORM "{".ws" if config.schedule.stationary else ""}"')
    blocks += _blocks(load_wrapper(derivation.fragment))
    if derivation.left is not None and config.pipeline.a_in == "registers":
        blocks += _blocks(store_wrapper(derivation.left.stored))
        if converts(config.problem) and data_type(config.problem.a).floating:
            blocks.append(f'#define A_TYPE "{config.problem.a}x2"')
    if uses_terms(config):
        # What is applied is called by what finishes a sum, and needs nothing but the instructions.
        blocks += _blocks(_activated(config, {"ptx.cuh", "types.cuh"}))
        taken |= {"activations.cuh"}
    blocks += _assemble([_FOLDER + name for name in _parts(config, rung)], taken)
    return "\n\n".join([_header(derivation, rung).strip(), *used(blocks)]) + "\n"


def used(blocks: list[str]) -> list[str]:
    """Without the functions and constants that nothing among the rest names: wrappers of instructions that this kernel
    does not need, and titles that nothing follows.

    >>> used(["constexpr int A = 1;", "DEVICE int f() { return A; }", "DEVICE int g() { return 2; }", "int k() { return g(); }"])
    ['DEVICE int g() { return 2; }', 'int k() { return g(); }']
    """
    while True:
        places = Counter(word for block in blocks for word in set(_WORD.findall(_COMMENT.sub("", block))))
        kept = [shorter for block in blocks if (shorter := _without_unused(block, places))]
        if kept == blocks:
            break
        blocks = kept
    # From the end: a section's title stays if a function follows before the next title, a file's if anything does.
    found: list[str] = []
    for block in reversed(blocks):
        following = found[-1] if found else _TITLE
        ends = (_SECTION, _TITLE) if block.startswith(_SECTION) else (_TITLE,)
        if not (block.startswith((_SECTION, _TITLE)) and "\n" not in block and following.startswith(ends)):
            found.append(block)
    return found[::-1]


def _without_unused(block: str, places: Counter[str]) -> str:
    """The block without its unused constants; "" if it defines functions or types and none is used elsewhere."""
    own = Counter(_WORD.findall(_COMMENT.sub("", block)))
    names = [name for groups in _DEFINED.findall(block) for name in groups if name]
    if names and all(places[name] < 2 for name in names):
        return ""
    lines = block.splitlines()
    constants = [_CONSTANT.match(line) for line in lines]
    return "\n".join(
        line
        for line, name in zip(lines, constants, strict=True)
        if name is None or places[name[1]] > 1 or own[name[1]] > 1
    )


def _blocks(text: str) -> list[str]:
    """Top-level pieces of a source: what blank lines separate outside of braces."""
    found: list[list[str]] = [[]]
    depth = 0
    for line in text.splitlines():
        if not line.strip() and depth == 0:
            found.append([])
        else:
            found[-1].append(line)
        depth += line.count("{") - line.count("}")
    return ["\n".join(lines) for lines in found if lines]


def _parts(config: GemmConfig, rung: Rung | None) -> list[str]:
    """The files that this kernel is made of, the kernel itself last."""
    group = "pair.cuh" if config.cluster.pair else "single.cuh"
    body = rung.body if rung else "gemm.cuh"
    if body != "gemm.cuh":
        return [group, body]
    terms, scaled = uses_terms(config), scaled_types(config.problem) is not None
    return [
        group,
        "finish.cuh" if terms else "finish_none.cuh",
        "rings.cuh",
        f"order_{config.schedule.order}.cuh",
        *_form_parts(config),
        "cluster_alone.cuh" if config.cluster.m * config.cluster.n == 1 else "cluster_multicast.cuh",
        f"tiles_{config.schedule.launch}.cuh",
        "epilogue_gated.cuh" if config.fusion.gated else f"epilogue_{config.epilogue.store}.cuh",
        *_left_parts(config),
        *([f"scaled_{group}", "scales.cuh"] if scaled else ["scales_none.cuh"]),
        f"kernel_{'scaled_' if scaled else ''}{'terms' if terms else 'plain'}.cuh",
    ]


def _form_parts(config: GemmConfig) -> list[str]:
    """One product or a batch, and how a CTA loads where no other does it for it."""
    batch = config.problem.form == "batch"
    loads = ["loads_batch.cuh" if batch else "loads.cuh"] if config.cluster.m * config.cluster.n == 1 else []
    return ["form_batch.cuh" if batch else "form_one.cuh", *loads]


def _left_parts(config: GemmConfig) -> list[str]:
    """Where the multiply reads A, and what A becomes on its way."""
    a_in, a = config.pipeline.a_in, config.problem.a
    if a_in != "registers":
        return ["left_shared.cuh" if a_in == "shared" else "left_copied.cuh"]
    if not converts(config.problem):
        return ["words_same.cuh", "left_registers.cuh"]
    return [f"words_of_{'floats' if data_type(a).floating else 'integers'}.cuh", "left_registers.cuh"]


def _assemble(names: list[str], taken: set[str]) -> list[str]:
    """The text of these device files and what they include, each once and after what it needs."""
    found: list[str] = []
    for name in names:
        if name in taken:
            continue
        taken.add(name)
        kept = []
        for line in _device_file(name).splitlines():
            include = _INCLUDE.match(line)
            if include:
                found += _assemble([posixpath.normpath(posixpath.join(posixpath.dirname(name), include[1]))], taken)
            elif line != "#pragma once":
                kept.append(line)
        found += [f"{_TITLE} kernels/cuda/{name} ".ljust(118, "="), *_blocks("\n".join(kept))]
    return found


@lru_cache(maxsize=64)
def _device_file(name: str) -> str:
    return resources.files("stridewright.kernels").joinpath("cuda", *name.split("/")).read_text(encoding="utf-8")


def _header(derivation: Derivation, rung: Rung | None) -> str:
    config = derivation.config
    threads = rung.threads if rung else config.threads
    lines = [f"{config.name}: generated by stridewright from the layouts named below."]
    if rung is not None:
        lines = [f"Rung {rung.number} of the ladder, {rung.title}: {rung.idea}", *lines]
    lines += [
        "Emulated and assembled; never run on hardware.",
        "",
        f"Compile for {config.arch}. Launch a one-dimensional grid of {_grid_words(derivation)}, {threads} threads each, with {derivation.shared_bytes} bytes",
        "of dynamic shared memory.",
    ]
    if rung is not None and not rung.maps:
        lines.append("a, b and d are dense: rows of K, K and N elements.")
        return "\n".join(_comment(line) for line in lines) + "\n"
    maps = derivation.tensor_maps(4096, 4096, 4096)
    types = ", ".join(dict.fromkeys(one.dtype for one in (maps.a, maps.b, maps.d) if one is not None))
    lines += [
        f"Tensor maps, encoded by cuTensorMapEncodeTiled and passed by value ({types}, element strides 1, no interleave, zero fill, L2 promotion 128 B):",
        f"  tensor_map_a       dims {_dims('M', config.problem.a_major)}, box {maps.a.box}, swizzle {maps.a.swizzle}",
        f"  tensor_map_b       dims {_dims('N', config.problem.b_major)}, box {maps.b.box}, swizzle {maps.b.swizzle}",
    ]
    if derivation.scales is not None:
        scale_a, scale_b = derivation.scale_maps(4096, 4096, 4096)
        lines += [
            f"  tensor_map_scale_a dims (half an atom's bytes, atoms along K, along M), 2 bytes an element, box {scale_a.box}, no swizzle",
            f"  tensor_map_scale_b the same of B, box {scale_b.box}, no swizzle",
        ]
    if maps.d is not None and maps.d_tail is not None:
        lines += [
            f"  tensor_map_d       dims (N, M), box {maps.d.box}, swizzle {maps.d.swizzle}",
            f"  tensor_map_d_tail  dims (N, M), box {maps.d_tail.box}, swizzle {maps.d_tail.swizzle}"
            + (" (the same)" if maps.d is maps.d_tail else ""),
            "d and d_row_stride are not used.",
        ]
    else:
        lines.append("tensor_map_d and tensor_map_d_tail are not used: pass any 128 bytes.")
    if uses_terms(config):
        lines.append("terms is the struct Terms below, by value: what is added, scaled and applied.")
    return "\n".join(_comment(line) for line in lines) + "\n"


def _dims(rows: str, major: str) -> str:
    return f"(K, {rows})" if major == "k" else f"({rows}, K)"


def _grid_words(derivation: Derivation) -> str:
    count = cluster_ctas(derivation.config)
    each = "one CTA" if count == 1 else f"{count} CTAs"
    what = "tile" if count == derivation.ctas else "block of tiles"
    if derivation.config.schedule.launch == "static":
        return f"{each} for each {what}, or at most one CTA for each SM"
    return f"{each} for each {what}"


def store_wrapper(count: int) -> str:
    """The wrapper of tcgen05.st for ``count`` registers a thread: each is a column of the thread's lane.

    Source: PTX ISA 9.1, section 9.7.16.8 (tcgen05.st).

    >>> store_wrapper(8).splitlines()[2]
    'DEVICE void tmem_store(const uint32 (&values)[8], uint32 address) {'
    """
    rows = [", ".join(f"%{i}" for i in range(first, min(first + 16, count))) for first in range(0, count, 16)]
    operands = [
        ", ".join(f'"r"(values[{i}])' for i in range(first, min(first + 8, count))) for first in range(0, count, 8)
    ]
    lines = [
        "// ======== registers to tensor memory: generated because the operand list has so many registers ".ljust(
            118, "="
        ),
        "// A warp's lanes from the address's on, so many columns of them.",
        f"DEVICE void tmem_store(const uint32 (&values)[{count}], uint32 address) {{",
        "    asm volatile(",
        f'        "tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%{count}],\\n"',
        *(
            f'        "  {"{" if i == 0 else " "}{row}{"};" if i == len(rows) - 1 else ","}"'
            for i, row in enumerate(rows)
        ),
        "        ::",
        *(f"        {row}," for row in operands),
        '        "r"(address)',
        '        : "memory");',
        "}\n",
    ]
    return "\n".join(lines)


def load_wrapper(fragment: Fragment) -> str:
    """The wrappers of ``tcgen05.ld`` and ``tcgen05.wait::ld``, for the registers that a piece of the accumulator takes.

    Source: PTX ISA 9.1, sections 9.7.16.8.1 and 9.7.16.8.4. The wait names the registers as its operands, so that the
    compiler moves no use of them in front of it.

    >>> from stridewright.kernels.blackwell import fragment_of
    >>> load_wrapper(fragment_of(GemmConfig(arch="sm_100a"))).splitlines()[3]
    'DEVICE void tmem_load(uint32 (&values)[32], uint32 address) {'
    """
    count = fragment.values
    split = f", {count}" if fragment.shape == "16x32bx2" else ""
    rows = [", ".join(f"%{i}" for i in range(first, min(first + 16, count))) for first in range(0, count, 16)]

    def operands(kind: str) -> list[str]:
        return [
            ", ".join(f'"{kind}"(values[{i}])' for i in range(first, min(first + 8, count)))
            for first in range(0, count, 8)
        ]

    listed = [
        f'        "{"  {" if i == 0 else "   "}{row}{"}" if i == len(rows) - 1 else ","}'
        + (f', [%{count}]{split};"' if i == len(rows) - 1 else '"')
        for i, row in enumerate(rows)
    ]
    lines = [
        "// ======== tensor memory to registers: generated because the operand list has VALUES registers ".ljust(
            118, "="
        ),
        "// A warp's lanes from the address's on, so many columns of them. The registers may not be used before the wait.",
        "// (Of 16x32bx2 the last operand is the column, counted from the first, that lanes 16 to 31 of the warp begin with.)",
        "DEVICE void tmem_load(uint32 (&values)[" + str(count) + "], uint32 address) {",
        "    asm volatile(",
        f'        "tcgen05.ld.sync.aligned.{fragment.shape}.x{count}.b32\\n"',
        *listed,
        *(
            f"        {': ' if i == 0 else '  '}{row}{',' if i < len(operands('=r')) - 1 else ''}"
            for i, row in enumerate(operands("=r"))
        ),
        '        : "r"(address)',
        '        : "memory");',
        "}",
        "",
        "DEVICE void tmem_load_wait(uint32 (&values)[" + str(count) + "]) {",
        '    asm volatile("tcgen05.wait::ld.sync.aligned;"',
        *(
            f"        {': ' if i == 0 else '  '}{row}{',' if i < len(operands('+r')) - 1 else ''}"
            for i, row in enumerate(operands("+r"))
        ),
        '        :: "memory");',
        "}\n",
    ]
    return "\n".join(lines)
