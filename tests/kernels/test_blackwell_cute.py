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

from stridewright.kernels.blackwell import OperandTile, operand_tile
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.layout import SwizzledLayout
from stridewright.layout.hardware import instruction_descriptor

FORMS = [(1, 64), (1, 128), (2, 128), (2, 256)]
WIDTHS = range(16, 257, 16)
DEPTHS = (32, 64, 128, 256)
SWIZZLES = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128"}


def tiles() -> list[OperandTile]:
    """The operand tiles of all configurations, each layout once."""
    base = GemmConfig(arch="sm_100a")
    rows_a = {("A", m // ctas) for ctas, m in FORMS}
    rows_b = {("B", n // ctas) for (ctas, _), n in itertools.product(FORMS, WIDTHS)}
    found = [
        operand_tile(name, rows, base.replace(tile_k=k, problem=Problem(a_major=major, b_major=major)), slices=slices)
        for (name, rows), k, major, slices in itertools.product(sorted(rows_a | rows_b), DEPTHS, ("k", "mn"), (1, 2, 4))
        if slices == 1 or rows % (8 * slices) == 0
    ]
    return list({(str(tile.layout), tile.major): tile for tile in found}.values())


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


def static(shape: object) -> str:
    """A tuple of integers as CuTe's static shape or stride."""
    if isinstance(shape, tuple):
        return f"cute::make_tuple({', '.join(static(one) for one in shape)})"
    return f"Int<{shape}>{{}}"


def program(chosen: list[OperandTile]) -> str:
    lines = []
    for number, tile in enumerate(chosen):
        inner = tile.layout.layout if isinstance(tile.layout, SwizzledLayout) else tile.layout
        bits = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[tile.swizzle]
        plain = f"make_layout({static(inner.shape)}, {static(inner.stride)})"
        layout = f"composition(Swizzle<{bits}, 4, 3>{{}}, smem_ptr_flag_bits<16>{{}}, {plain})"
        first = f"Shape<Int<{tile.rows}>, Int<16>>{{}}"
        lines.append(
            f"{{ auto part = local_tile(make_tensor(make_smem_ptr(static_cast<bfloat16_t*>(nullptr)), {layout}), {first}, make_coord(0, 0));"
            f' std::printf("DESC {number} %016llx\\n",'
            f" static_cast<unsigned long long>(UMMA::make_umma_desc<UMMA::Major::{tile.major.upper()}>(part).desc_)); }}"
        )
    for (ctas, m), n, a, b in itertools.product(FORMS, WIDTHS, ("k", "mn"), ("k", "mn")):
        for dtype, cute in (("bf16", "bfloat16_t"), ("f16", "half_t")):
            majors = f"UMMA::Major::{a.upper()}, UMMA::Major::{b.upper()}"
            lines.append(
                f'std::printf("IDESC {ctas} {m} {n} {dtype} {a} {b} %08x\\n",'
                f" static_cast<unsigned>(UMMA::make_instr_desc<{cute}, {cute}, float, {m}, {n}, {majors}>()));"
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
    seen = re.findall(r"^IDESC (\d) (\d+) (\d+) (\w+) (\w+) (\w+) ([0-9a-f]{8})$", text, re.MULTILINE)
    assert len(seen) == len(FORMS) * len(WIDTHS) * 8
    for ctas, m, n, dtype, a, b, word in seen:
        ours = instruction_descriptor("f16", int(m), int(n), dtype, dtype, "f32", a, b, cta_group=int(ctas))
        assert f"{ours:08x}" == word, (ctas, m, n, dtype, a, b)


def test_a_sample_of_the_descriptors_and_every_instruction_descriptor_are_cute_s(tmp_path: Path) -> None:
    every = tiles()
    compare([tile for number, tile in enumerate(every) if number % 29 == 3], tmp_path)


@pytest.mark.slow
def test_every_descriptor_is_cute_s(tmp_path: Path) -> None:
    compare(tiles(), tmp_path)
