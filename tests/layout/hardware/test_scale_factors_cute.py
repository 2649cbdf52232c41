"""The layouts of scale factors are those that CuTe's headers make (sm100_blockscaled_layout.hpp: Sm1xxBlockScaledConfig).

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

from stridewright.layout import Layout, size
from stridewright.layout.hardware.scale_factors import ScaleTensor, scale_layout_of

SHAPES = [(128, 512), (256, 1024), (384, 768), (640, 2048), (200, 1056), (1, 512)]


def program() -> str:
    lines = []
    for vector, (m, k) in itertools.product((16, 32), SHAPES):
        config = f"cutlass::detail::Sm1xxBlockScaledConfig<{vector}>"
        lines += [
            f'std::printf("SFA {vector} {m} {k} "); print({config}::tile_atom_to_shape_SFA(make_shape({m}, 256, {k}, 1))); std::printf("\\n");',
            f'std::printf("SFB {vector} {m} {k} "); print({config}::tile_atom_to_shape_SFB(make_shape(256, {m}, {k}, 1))); std::printf("\\n");',
        ]
    body = "\n  ".join(lines)
    return f"""#include <cstdio>
#include <cute/tensor.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>
using namespace cute;
int main() {{
  {body}
}}
"""


def include_paths() -> tuple[str, list[str]] | None:
    compiler, spec = shutil.which("g++"), importlib.util.find_spec("cutlass_library")
    if compiler is None or spec is None or not spec.submodule_search_locations:
        return None
    cute = Path(next(iter(spec.submodule_search_locations))) / "source" / "include"
    toolkits = ["/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*")))]
    cuda = next((Path(p) / "include" for p in toolkits if (Path(p) / "include" / "cuda_runtime.h").exists()), None)
    if not (cute / "cutlass" / "detail" / "sm100_blockscaled_layout.hpp").exists() or cuda is None:
        return None
    return compiler, [f"-I{cute}", f"-I{cuda}", f"-I{cuda / 'cccl'}"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, int, int], str]:
    found = include_paths()
    if found is None:
        pytest.skip("needs g++, the package nvidia-cutlass (CuTe's headers) and the CUDA toolkit's headers")
    compiler, includes = found
    folder = tmp_path_factory.mktemp("cute-scales")
    source, binary = folder / "scales.cpp", folder / "scales"
    source.write_text(program())
    built = subprocess.run(
        [compiler, "-std=c++17", "-O0", "-w", *includes, str(source), "-o", str(binary)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-4000:]
    text = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^(SF[AB]) (\d+) (\d+) (\d+) (\S+)$", text, re.MULTILINE)
    return {(name, int(vector), int(rows), int(k)): layout.replace("_", "") for name, vector, rows, k, layout in lines}


@pytest.mark.parametrize("operand", ["SFA", "SFB"])
@pytest.mark.parametrize("vector", [16, 32])
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_the_tensor_s_layout_is_cute_s(
    operand: str, vector: int, rows: int, k: int, printed: dict[tuple[str, int, int, int], str]
) -> None:
    """As functions, on every coordinate, and as printed but for modes of one: CuTe appends the batch as a third mode."""
    cute = Layout.parse(printed[operand, vector, rows, k])
    ours = scale_layout_of(rows, k, vector)
    theirs = Layout((cute.shape[0], cute.shape[1]), (cute.stride[0], cute.stride[1]))
    assert size(theirs) == size(ours)
    assert size(cute.shape[2]) == 1
    span = 4 * vector
    for row, element in itertools.product(range(-(-rows // 128) * 128), range(0, -(-k // span) * span, vector // 2)):
        assert theirs(row, element) == ours(row, element)
    scales = ScaleTensor("scale_a", rows, k, vector, "ue8m0" if vector == 32 else "ue4m3")
    assert scales.bytes == ours(size(ours[0]) - 1, size(ours[1]) - 1) + 1
    if rows > 128 and k > span:
        assert str(theirs) == str(ours)
