"""Every operand tile and every instruction of the Blackwell family has the descriptor that CuTe's own headers make of its layout.

Needs g++, the nvidia-cutlass package (its headers) and the CUDA toolkit's headers; skipped where one is missing.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stridewright.kernels.blackwell_operands import OperandTile, operand_tile
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.layout import SwizzledLayout
from stridewright.layout.hardware import InstructionDescriptor, instruction_descriptor

FORMS = [(1, 64), (1, 128), (2, 128), (2, 256)]
WIDTHS = range(16, 257, 16)
DEPTHS = (32, 64, 128, 256)
SWIZZLES = {"none": (0, 4, 3), "32B": (1, 4, 3), "64B": (2, 4, 3), "128B": (3, 4, 3), "128B_atom_32B": (2, 5, 2)}
"""CuTe's Swizzle<bits, base, shift> on byte addresses."""

ELEMENTS = {"bf16": "bfloat16_t", "tf32": "tfloat32_t", "e4m3": "float_e4m3_t", "u8": "uint8_t"}
"""CuTe's name of a format, one of each width and of integers."""

KINDS = {
    "f16": ({"bf16": "bfloat16_t", "f16": "half_t"}, "float", "f32"),
    "tf32": ({"tf32": "tfloat32_t"}, "float", "f32"),
    "f8f6f4": (
        {"e4m3": "float_e4m3_t", "e5m2": "float_e5m2_t", "e2m3": "detail::float_e2m3_unpacksmem_t",
         "e3m2": "detail::float_e3m2_unpacksmem_t", "e2m1": "detail::float_e2m1_unpacksmem_t"}, "float", "f32",
    ),
    "i8": ({"s8": "int8_t", "u8": "uint8_t"}, "int32_t", "s32"),
}  # fmt: skip


def tiles(dtype: str = "bf16") -> list[OperandTile]:
    """The operand tiles of all configurations, each layout once."""
    base = GemmConfig(arch="sm_100a")
    rows_a = {("A", m // ctas) for ctas, m in FORMS}
    rows_b = {("B", n // ctas) for (ctas, _), n in itertools.product(FORMS, WIDTHS)}
    found = [
        operand_tile(name, rows, base.replace(tile_k=k, problem=problem(dtype, major)), slices=slices)
        for (name, rows), k, major, slices in itertools.product(sorted(rows_a | rows_b), DEPTHS, ("k", "mn"), (1, 2, 4))
        if (slices == 1 or rows % (8 * slices) == 0) and (major == "k" or rows % (slices * RUNS[dtype]) == 0)
    ]
    return list({(str(tile.layout), tile.major): tile for tile in found}.values())


RUNS = {"bf16": 8, "tf32": 32, "e4m3": 16, "u8": 16}
"""Rows that lie side by side in the smallest MN-major tile."""


def problem(dtype: str, major: str) -> Problem:
    return Problem(a=dtype, b=dtype, d="f32", a_major=major, b_major=major)  # type: ignore[arg-type]


def include_paths() -> tuple[str, list[str]] | None:
    """The compiler and the headers' folders, None where something is missing."""
    compiler = shutil.which("g++")
    spec = importlib.util.find_spec("cutlass_library")
    if compiler is None or spec is None or not spec.submodule_search_locations:
        return None
    cute = Path(next(iter(spec.submodule_search_locations))) / "source" / "include"
    toolkits = ["/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*")))]
    cuda = next((Path(p) / "include" for p in toolkits if (Path(p) / "include" / "cuda_runtime.h").exists()), None)
    if not (cute / "cute" / "layout.hpp").exists() or cuda is None:
        return None
    return compiler, [f"-I{cute}", f"-I{cuda}", f"-I{cuda / 'cccl'}"]


def instructions() -> list[tuple[int, int, int, str, str, str, str, str]]:
    """All of kind f16, and of the other kinds every pair of formats with every major, form and width at least once."""
    found = []
    for kind, (names, _, _) in KINDS.items():
        pairs = [(a, a) for a in names] if kind == "f16" else list(itertools.product(names, names))
        shapes = [(ctas, m, n) for (ctas, m), n in itertools.product(FORMS, WIDTHS)]
        for number, (a, b) in enumerate(pairs):
            # Of 25 pairs of formats each has a share of the shapes.
            for ctas, m, n in shapes if len(pairs) < 5 else shapes[number % 5 :: 5]:
                for major_a, major_b in itertools.product(("k", "mn"), ("k", "mn")):
                    word = (kind, m, n, a, b, KINDS[kind][2], major_a, major_b)
                    if not InstructionDescriptor(*word).problems(ctas):  # type: ignore[arg-type]
                        found.append((ctas, m, n, kind, a, b, major_a, major_b))
    return found


def static(shape: object) -> str:
    """A tuple of integers as CuTe's static shape or stride."""
    if isinstance(shape, tuple):
        return f"cute::make_tuple({', '.join(static(one) for one in shape)})"
    return f"Int<{shape}>{{}}"


def program(chosen: list[OperandTile]) -> str:
    lines = []
    for number, tile in enumerate(chosen):
        inner = tile.layout.layout if isinstance(tile.layout, SwizzledLayout) else tile.layout
        swizzle = "Swizzle<{}, {}, {}>".format(*SWIZZLES[tile.swizzle])
        plain = f"make_layout({static(inner.shape)}, {static(inner.stride)})"
        layout = f"composition({swizzle}{{}}, smem_ptr_flag_bits<{tile.bits}>{{}}, {plain})"
        first = f"Shape<Int<{tile.rows}>, Int<{256 // tile.bits}>>{{}}"
        element = ELEMENTS[tile.dtype]
        lines.append(
            f"{{ auto part = local_tile(make_tensor(make_smem_ptr(static_cast<{element}*>(nullptr)), {layout}), {first}, make_coord(0, 0));"
            f' std::printf("DESC {number} %016llx\\n",'
            f" static_cast<unsigned long long>(UMMA::make_umma_desc<UMMA::Major::{tile.major.upper()}>(part).desc_)); }}"
        )
    for ctas, m, n, kind, a, b, major_a, major_b in instructions():
        names, sums, _ = KINDS[kind]
        majors = f"UMMA::Major::{major_a.upper()}, UMMA::Major::{major_b.upper()}"
        lines.append(
            f'std::printf("IDESC {ctas} {m} {n} {kind} {a} {b} {major_a} {major_b} %08x\\n",'
            f" static_cast<unsigned>(UMMA::make_instr_desc<{names[a]}, {names[b]}, {sums}, {m}, {n}, {majors}>()));"
        )
    body = "\n  ".join(lines)
    return f"""#include <cstdio>
#include <cute/tensor.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
using namespace cute;
int main() {{
  {body}
}}
"""


def printed(chosen: list[OperandTile], folder: Path) -> str:
    found = include_paths()
    if found is None:
        pytest.skip("needs g++, the package nvidia-cutlass (CuTe's headers) and the CUDA toolkit's headers")
    compiler, includes = found
    source, binary = folder / "blackwell.cpp", folder / "blackwell"
    source.write_text(program(chosen))
    command = [compiler, "-std=c++17", "-O0", "-w", *includes, str(source), "-o", str(binary)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    return subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout


def compare(chosen: list[OperandTile], folder: Path) -> None:
    text = printed(chosen, folder)
    words = dict(re.findall(r"^DESC (\d+) ([0-9a-f]{16})$", text, re.MULTILINE))
    assert len(words) == len(chosen)
    for number, tile in enumerate(chosen):
        assert f"{tile.descriptor:016x}" == words[str(number)], (tile.rows, tile.major, tile.swizzle, str(tile.layout))
    seen = re.findall(r"^IDESC (\d) (\d+) (\d+) (\w+) (\w+) (\w+) (\w+) (\w+) ([0-9a-f]{8})$", text, re.MULTILINE)
    assert len(seen) == len(instructions()) > 1500
    for ctas, m, n, kind, a, b, major_a, major_b, word in seen:
        sums = KINDS[kind][2]
        ours = instruction_descriptor(kind, int(m), int(n), a, b, sums, major_a, major_b, cta_group=int(ctas))
        assert f"{ours:08x}" == word, (ctas, m, n, kind, a, b, major_a, major_b)


def test_a_sample_of_the_descriptors_and_every_instruction_descriptor_are_cute_s(tmp_path: Path) -> None:
    every = [tile for dtype in ELEMENTS for tile in tiles(dtype)]
    assert {tile.swizzle for tile in every} == set(SWIZZLES)
    compare([tile for number, tile in enumerate(every) if number % 37 == 3], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_every_descriptor_is_cute_s(tmp_path: Path, dtype: str) -> None:
    compare(tiles(dtype), tmp_path)
