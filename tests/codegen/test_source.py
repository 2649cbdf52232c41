"""The generated source: self-contained, made of the hand-written files and the derived constants, the same where nothing differs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.division import divide
from stridewright.codegen.source import generate
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.fusion import Fusion

SNAPSHOTS = Path(__file__).parent / "snapshots"
CONFIGS = {
    "default": GemmConfig(),
    "small": GemmConfig().replace(tile_m=64, tile_n=40, consumers=1, stages=8),
    "direct": GemmConfig().replace(tile_m=256, tile_n=72, stages=3, store="direct"),
    "pingpong": GemmConfig().replace(schedule_kind="pingpong", tile_n=176, cluster_m=2, buffers=1),
    "swapped": GemmConfig().replace(tile_m=64, tile_n=40, tile_k=128, consumers=1, swap=True),
    "split": GemmConfig().replace(tile_n=128, tile_k=32, split_kind="split", parts=4, cluster_n=2, hint_b="last"),
}


def derived_part(source: str) -> str:
    """What the layouts gave: from the first derived section to the multiply's wrapper."""
    first, last = source.index("// ======== The tile, and who"), source.index("// ======== the multiply")
    return source[first:last]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_derived_part_is_as_reviewed(name: str) -> None:
    """After a wanted change: write ``derived_part(generate(config))`` into the snapshot, and review its diff."""
    assert derived_part(generate(CONFIGS[name])) == (SNAPSHOTS / f"{name}.cuh").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CONFIGS)
def test_the_source_is_self_contained(name: str) -> None:
    source = generate(CONFIGS[name])
    assert "#include" not in source
    assert 'extern "C" __global__' in source
    assert build(source, arch="sm_90a").kernel("stridewright_gemm").spill_store_bytes == 0


@pytest.mark.parametrize("name", CONFIGS)
def test_lines_fit_a_screen_and_name_what_is_there(name: str) -> None:
    source = generate(CONFIGS[name])
    assert [line for line in source.splitlines() if len(line) > 140] == []
    code = re.sub(r"//.*", "", source)
    words = {
        word
        for comment in re.findall(r"//(?! =)(.*)", source)
        for word in re.findall(r"\b[A-Z]+_[A-Z_]*[A-Z]\b", comment)
    }
    assert {word for word in words if word not in code and not word.startswith("CU_")} == set()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ("any number is right", "K > 0", "MAX_DYNAMIC_SHARED_SIZE_BYTES", "multiples of 16 bytes")),
        (
            {"split_kind": "split", "parts": 4},
            ("cooperative launch", "a share must not be empty", "2 tiles for each CTA", "always the same"),
        ),
        (
            {"split_kind": "split", "parts": 4, "reduce": "atomic", "cluster_m": 2},
            ("no more clusters than", "shared_blocks * 2 tiles", "may differ from launch to launch"),
        ),
        ({"schedule_kind": "pingpong"}, ("the consumer whose tile it is has read the slot: 4 arrivals",)),
    ],
    ids=["plain", "ordered", "atomic", "ping-pong"],
)
def test_a_reader_is_told_what_a_launch_must_keep_to(changes: dict[str, object], said: tuple[str, ...]) -> None:
    source = " ".join(generate(GemmConfig().replace(tile_n=128, **changes)).replace("\n// ", " ").split())
    for words in said:
        assert words in source, words
    assert ("each adds up a part" in source) == (changes.get("split_kind") == "split" and "reduce" not in changes)


@pytest.mark.parametrize("kind", ["split", "stream"])
def test_no_launch_has_an_empty_share_of_k(kind: str) -> None:
    """A cluster with none of the shared k-blocks would be waited for by its neighbours and never come."""
    for cluster, parts in (((1, 1), 2), ((2, 1), 7), ((2, 2), 128)):
        config = GemmConfig().replace(tile_n=128, split_kind=kind, cluster_m=cluster[0], cluster_n=cluster[1])
        config = config.replace(parts=parts) if kind == "split" else config
        for m, n in ((1, 1), (128, 128), (300, 1000), (4096, 4096), (5000, 3000)):
            for k in (1, 64, 65, 200, 4096):
                for sms in (1, 5, 8, 132):
                    division = divide(config, m, n, k, sms)
                    if not division.shared_blocks:
                        continue
                    total = division.shared_blocks * division.k_blocks
                    begins = [cluster * total // division.clusters for cluster in range(division.clusters + 1)]
                    assert division.clusters <= total
                    assert all(begin < end for begin, end in itertools.pairwise(begins))


def test_the_source_does_not_depend_on_the_sizes() -> None:
    config = GemmConfig()
    assert Gemm(512, 512, 256, config=config).source == Gemm(8192, 1024, 64, config=config).source


def test_every_derived_section_names_the_layout_it_comes_from() -> None:
    source = derived_part(generate(GemmConfig()))
    for layout in (
        "S<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))",
        "S<3,3,3> o ((8,32),(64,1)):((64,512),(1,0))",
        "((4,8,4),(2,2,32)):((128,1,16),(64,8,512))",
    ):
        assert layout in source


@pytest.mark.slow
@pytest.mark.parametrize("store", ["tma", "direct"])
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (2, 2)], ids=str)
@pytest.mark.parametrize(
    ("kind", "tile_m", "consumers"),
    [
        ("cooperative", 64, 1),
        ("cooperative", 128, 1),
        ("cooperative", 128, 2),
        ("cooperative", 256, 1),
        ("cooperative", 256, 2),
        ("pingpong", 64, 2),
        ("pingpong", 128, 2),
    ],
)
def test_every_legal_tile_compiles_without_complaint(
    kind: str, tile_m: int, consumers: int, cluster: tuple[int, int], store: str
) -> None:
    for tile_n in range(8, 257, 8):
        for swap in (False, True):
            config = GemmConfig().replace(
                schedule_kind=kind, tile_m=tile_m, tile_n=tile_n, consumers=consumers, stages=2, store=store, swap=swap
            )
            config = config.replace(cluster_m=cluster[0], cluster_n=cluster[1])
            # Narrow tiles differ in nothing that could spill: a few of them stand for all.
            if not config.violations() and (tile_n >= 160 or tile_n in (8, 16, 24, 64, 128)):
                build(generate(config), arch="sm_90a", use_cache=False)


@pytest.mark.parametrize(
    "parameters",
    [
        {"tile_m": 256, "tile_n": 192, "stages": 2, "store": "direct"},
        {"tile_m": 256, "tile_n": 192, "stages": 2},
        {"tile_m": 128, "tile_n": 192, "consumers": 1},
        {"tile_m": 256, "tile_n": 96, "consumers": 1},
        {"tile_m": 64, "tile_n": 256, "consumers": 1},
    ],
    ids=str,
)
def test_the_largest_tiles_compile_without_spilling(parameters: dict[str, object]) -> None:
    config = GemmConfig().replace(**parameters)
    assert build(generate(config), arch="sm_90a").complaints == ()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2), (2, 2)], ids=str)
@pytest.mark.parametrize("sets", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_promoted_tiles_of_plain_stores_compile(cluster: tuple[int, int], sets: int, scaled: bool) -> None:
    fusion = Fusion(scale_a="block", scale_b="block") if scaled else Fusion()
    config = GemmConfig(problem=Problem(a="e4m3", b="e4m3", d="f32"), fusion=fusion).replace(
        tile_m=128, tile_n=128, tile_k=128
    )
    config = config.replace(promote=128, accumulators=sets, cluster_m=cluster[0], cluster_n=cluster[1], store="direct")
    assert build(generate(config), arch="sm_90a").complaints == ()
