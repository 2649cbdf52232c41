"""Block scaling in the derivation: constants that the documents state, rules that refuse, columns and slots that fit together."""

from __future__ import annotations

import itertools
import re

import pytest

from stridewright.kernels.blackwell import derive
from stridewright.kernels.blackwell_rules import shared_parts
from stridewright.kernels.blackwell_scales import scale_map, tile_scales
from stridewright.kernels.blackwell_types import element_of, instruction_k, kind_of, stored
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.layout.hardware.scale_factors import SCALED_TYPES, ScaleSlot, ScaleTensor, scaled_kind

TILES = [(False, 128, n) for n in (64, 128, 192, 256)] + [(True, 256, n) for n in (64, 128, 192, 256)]


def config_of(a: str, b: str, pair: bool, m: int, n: int, k: int, **changes: object) -> GemmConfig:
    config = GemmConfig(arch="sm_100a", problem=Problem(a=a, b=b))
    return config.replace(pair=pair, tile_m=m, tile_n=n, tile_k=k, stages=2, **changes)


# The words that the CuTe DSL's PTX holds; tests/foreign compares with the compiler itself.
WORDS = {
    ("mxfp8", False, 128, 128): 0x08A00000,
    ("mxfp8", True, 256, 256): 0x10C00000,
    ("mxfp4", False, 128, 128): 0x08A00480,
    ("mxfp4", True, 256, 256): 0x10C00480,
    ("nvfp4", False, 128, 128): 0x08200480,
    ("nvfp4", True, 256, 256): 0x10400480,
}


@pytest.mark.parametrize(("format", "pair", "m", "n"), WORDS)
def test_descriptors_are_those_that_are_known(format: str, pair: bool, m: int, n: int) -> None:
    derivation = derive(config_of(format, format, pair, m, n, 128 if format == "mxfp8" else 256))
    assert derivation.instruction_descriptor == WORDS[format, pair, m, n]
    assert derivation.a.descriptor == derivation.b.descriptor == 0x4000404000010000
    assert [derivation.a.step_advance(step) for step in range(4)] == [0, 2, 4, 6]


def test_kinds_and_stored_formats() -> None:
    for a, b in itertools.product(SCALED_TYPES, repeat=2):
        kind = kind_of(Problem(a=a, b=b))
        assert kind == scaled_kind(a, b)
        if "nvfp4" in (a, b):
            assert kind == ("mxf4nvf4" if a == b else "")
        else:
            assert kind == ("mxf4" if a == b == "mxfp4" else "mxf8f6f4")
            assert instruction_k(Problem(a=a, b=b)) == (64 if kind == "mxf4" else 32)
    assert kind_of(Problem(a="mxfp8", b="e4m3")) == ""
    assert stored("mxfp4", "mxf4") == "e2m1"
    assert stored("mxfp4", "mxf8f6f4") == "e2m1_padded"
    assert element_of("nvfp4") == "e2m1"


@pytest.mark.parametrize(("format", "k"), [("mxfp8", 128), ("mxfp8", 256), ("mxfp4", 128), ("mxfp4", 256), ("nvfp4", 64), ("nvfp4", 256)])  # fmt: skip
@pytest.mark.parametrize(("pair", "m", "n"), TILES)
def test_columns_and_slots_do_not_meet(format: str, k: int, pair: bool, m: int, n: int) -> None:
    config = config_of(format, format, pair, m, n, k, store="direct")
    derivation = derive(config)
    scales = derivation.scales
    assert scales is not None
    # A pair's CTA has the factors of its own rows of A, and those of every row of B that a tile may begin at or reach.
    assert scales.a.rows == 128
    starts = {column * n % 128 for column in range(4)}
    assert all(start + n <= scales.b.atoms[0] * 128 for start in starts)
    taken: set[int] = set()
    for region in derivation.plan.regions:
        columns = set(range(region.column, region.end))
        assert not columns & taken
        taken |= columns
    assert max(taken) < derivation.plan.columns <= 512
    parts = shared_parts(config)
    assert parts["scales of A"] == 2 * scales.a.bytes
    assert derivation.offset("scales of A") % 128 == 0  # TMA's destinations
    assert derivation.offset("scales of B") % 128 == 0
    # A step reads the factors of its own elements: together, steps read each once.
    for slot in (scales.a, scales.b):
        read = [(slot.step_columns(step), slot.step_ids(step)) for step in range(slot.steps)]
        assert len(set(read)) == slot.steps == derivation.k_steps
        each = scales.step_k // scales.vector
        cells = sorted(4 * column + byte + i for column, byte in read for i in range(each))
        wanted = sorted(4 * slot.atoms[0] * 4 * atom + i for atom in range(slot.atoms[1]) for i in range(4))
        assert cells == wanted


@pytest.mark.parametrize(("rows", "k", "vector", "dtype"), [(300, 1024, 32, "ue8m0"), (128, 64, 16, "ue4m3"), (1, 32, 32, "ue8m0")])  # fmt: skip
def test_the_map_of_factors_cuts_out_whole_atoms(rows: int, k: int, vector: int, dtype: str) -> None:
    """A box's bytes, in the copy engine's order, are those of the slot's layout."""
    tensor, slot = ScaleTensor("scale_a", rows, k, vector, dtype), ScaleSlot(256, 8 * vector, vector, 64)
    tensor_map = scale_map(tensor, slot, "sm_100a")
    assert tensor_map.problems() == []
    assert tensor_map.shape == (256, tensor.atoms[1], tensor.atoms[0])
    assert tensor_map.box_bytes == slot.bytes
    for down, along in itertools.product(range(min(2, tensor.atoms[0])), range(min(2, tensor.atoms[1]))):
        # Atom (down, along) of the box stands at this byte of the slot, and of the tensor.
        place = (down * tensor_map.box[1] + along) * 512
        assert slot.shared(128 * down, 4 * vector * along) == place
        source = down * tensor_map.strides_bytes[1] + along * tensor_map.strides_bytes[0]
        assert tensor.layout(128 * down, 4 * vector * along) == source


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile_m": 64}, "tile_m=64: must be 128: block scaling takes 128 rows of A for each CTA"),
        ({"pair": True, "tile_m": 128}, "tile_m=128: must be 256: of a pair's 128 rows nobody has said where the factors lie"),
        ({"tile_n": 96}, "tile_n=96: must be a multiple of 64.*nearest 64, 128"),
        ({"tile_k": 64}, "tile_k=64: must be a multiple of 128: an atom holds 4 factors a row, of 32 elements each; nearest 128"),
        ({"tile_n": 256, "accumulators": 2}, "512 columns of tensor memory and 24 for the scale factors of all slots, and an SM has 512; accumulators=1"),
        ({"stages": 12, "tile_n": 192, "accumulators": 2}, "stages=12: 384 columns of tensor memory and 144 for .*stages=10 fits"),
        ({"stages": 9}, "scales of A"),
    ],
)  # fmt: skip
def test_tiles_that_factors_do_not_go_with_are_refused(changes: dict[str, object], message: str) -> None:
    config = config_of("mxfp8", "mxfp8", False, 128, 128, 128).replace(**changes)
    assert re.search(message, "\n".join(config.problems())), config.problems()


def test_tiles_of_factors_are_none_without_factors() -> None:
    assert tile_scales(GemmConfig(arch="sm_100a"), 16) is None
    derivation = derive(GemmConfig(arch="sm_100a"))
    assert derivation.scales is None
    with pytest.raises(ValueError, match="bf16 and bf16 have no scale factors"):
        derivation.scale_maps(128, 128, 128)
