"""The derived constants mean what the hardware does with them: each is checked element by element against the chip's own rules."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stridewright.kernels.blackwell import derive, fragment_of
from stridewright.kernels.blackwell_ladder import rungs
from stridewright.kernels.blackwell_problem_rules import plain_violations
from stridewright.kernels.blackwell_rules import SHARED_LIMIT, panel_rows
from stridewright.kernels.blackwell_types import instruction_k, panel_columns, result_bytes
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.fusion import Fusion
from stridewright.layout.hardware import (
    accumulator_layout,
    decode_instruction_descriptor,
    decode_matrix_descriptor,
    tensor_memory_access,
)

BASE = GemmConfig(arch="sm_100a").replace(stages=2)
FORMS = [(False, 64), (False, 128), (True, 128), (True, 256)]
MAJORS = list(itertools.product(("k", "mn"), repeat=2))
CONFIGS = [
    BASE.replace(pair=pair, tile_m=m, tile_n=n, tile_k=k, problem=Problem(a_major=a, b_major=b))
    for (pair, m), n, k, (a, b) in (
        (FORMS[0], 16, 64, MAJORS[0]),
        (FORMS[0], 48, 32, MAJORS[3]),
        (FORMS[0], 256, 128, MAJORS[1]),
        (FORMS[1], 16, 64, MAJORS[3]),
        (FORMS[1], 176, 64, MAJORS[2]),
        (FORMS[1], 256, 64, MAJORS[0]),
        (FORMS[2], 16, 64, MAJORS[3]),
        (FORMS[2], 96, 128, MAJORS[0]),
        (FORMS[2], 256, 32, MAJORS[1]),
        (FORMS[3], 48, 64, MAJORS[2]),
        (FORMS[3], 128, 64, MAJORS[3]),
        (FORMS[3], 256, 64, MAJORS[0]),
    )
]


TYPES = [
    BASE.replace(
        pair=pair, tile_m=m, tile_n=n, tile_k=k, problem=Problem(a=a, b=b, d=d, a_major=a_major, b_major=b_major)
    )
    for a, b, d, k, (pair, m), n, (a_major, b_major) in (
        ("tf32", "tf32", "f32", 32, FORMS[0], 96, MAJORS[0]),
        ("tf32", "tf32", "bf16", 64, FORMS[1], 96, MAJORS[3]),
        ("tf32", "tf32", "f32", 32, FORMS[2], 192, MAJORS[1]),
        ("tf32", "tf32", "s8", 32, FORMS[3], 64, MAJORS[2]),
        ("e4m3", "e4m3", "bf16", 128, FORMS[0], 96, MAJORS[3]),
        ("e4m3", "e5m2", "e4m3", 64, FORMS[0], 32, MAJORS[0]),
        ("e5m2", "e4m3", "f32", 256, FORMS[1], 112, MAJORS[2]),
        ("e5m2", "e5m2", "e5m2", 32, FORMS[2], 160, MAJORS[3]),
        ("e4m3", "e4m3", "e4m3", 128, FORMS[3], 256, MAJORS[1]),
        ("s8", "s8", "s32", 128, FORMS[0], 80, MAJORS[0]),
        ("s8", "u8", "s8", 64, FORMS[1], 48, MAJORS[1]),
        ("u8", "u8", "bf16", 128, FORMS[2], 64, MAJORS[2]),
        ("u8", "s8", "s32", 128, FORMS[3], 96, MAJORS[3]),
        ("bf16", "bf16", "f32", 64, FORMS[0], 176, MAJORS[0]),
        ("f16", "f16", "e4m3", 64, FORMS[1], 240, MAJORS[2]),
    )
]
STATIONARY = [
    BASE.replace(stationary=True, tile_m=m, tile_n=n, tile_k=k, problem=Problem(a=a, b=b, d=d, b_major=major))
    for m, n, k, a, b, d, major in (
        (32, 64, 64, "bf16", "bf16", "bf16", "k"),
        (32, 256, 64, "f16", "f16", "f32", "mn"),
        (32, 128, 128, "e4m3", "e5m2", "e4m3", "k"),
        (64, 64, 32, "tf32", "tf32", "f32", "mn"),
        (64, 256, 128, "s8", "u8", "s8", "k"),
        (128, 128, 64, "bf16", "bf16", "e5m2", "mn"),
    )
]  # fmt: skip
CONFIGS += TYPES + STATIONARY


def names(config: GemmConfig) -> str:
    return config.name


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_the_copy_engine_puts_every_element_where_the_tile_s_layout_says(config: GemmConfig) -> None:
    derivation = derive(config)
    maps = derivation.tensor_maps(1008, 1008, 1008)
    for tensor_map, operand in ((maps.a, derivation.a), (maps.b, derivation.b)):
        assert tensor_map.problems() == []
        assert tensor_map.box_bytes == operand.box_bytes
        assert operand.box_bytes * operand.boxes == operand.slot_bytes
        for row in {0, 1, 7, operand.rows // 2, operand.rows - 1}:
            for k in range(0, config.tile.k, 5):
                along, across = (k, row) if operand.major == "k" else (row, k)
                box, within = divmod(along, operand.box_span)
                landed = box * operand.box_bytes + tensor_map.byte_of((within, across))
                assert landed == operand.bytes_of(operand.layout(row, k))


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_the_tensor_core_reads_every_element_where_the_tile_s_layout_says(config: GemmConfig) -> None:
    derivation = derive(config)
    for operand in (derivation.a, derivation.b):
        depth = instruction_k(config.problem)
        for step in range(config.tile.k // depth):
            word = operand.descriptor + operand.step_advance(step)
            addresses = decode_matrix_descriptor(word, "sm_100a").addresses(operand.dtype, operand.major, operand.rows)
            expected = [
                [operand.bytes_of(operand.layout(row, depth * step + k)) for k in range(depth)]
                for row in range(operand.rows)
            ]
            np.testing.assert_array_equal(addresses, expected)


@pytest.mark.parametrize(("pair", "m"), FORMS)
@pytest.mark.parametrize("n", [16, 48, 96, 256])
def test_every_register_of_the_epilogue_holds_the_element_that_the_layouts_say(pair: bool, m: int, n: int) -> None:
    """Plays tcgen05.ld by its definition: which lane and column each register meets, and which element the multiply left there."""
    config = BASE.replace(pair=pair, tile_m=m, tile_n=n)
    fragment = fragment_of(config)
    group = 2 if pair else 1
    accumulator = accumulator_layout(m, n, group)
    rows = m // group
    element_at = {int(accumulator(row, column)): (row, column) for row in range(rows) for column in range(n)}
    access = tensor_memory_access(fragment.shape, fragment.values)
    seen = set()
    for warp, piece, lane, value in itertools.product(
        range(4), range(fragment.pieces), range(32), range(fragment.values)
    ):
        place = access.place(lane, value, fragment.values)
        word = (32 * warp + place[0]) << 16 | (piece * fragment.columns + place[1])
        element = fragment.row(lane, warp), fragment.column(lane, warp, value, piece)
        assert element == element_at[word]
        assert fragment.place(lane, warp, value, piece) == word
        seen.add(element)
    assert len(seen) == rows * n


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_a_thread_s_eight_values_are_neighbours_in_a_row_of_d(config: GemmConfig) -> None:
    fragment = derive(config).fragment
    for lane, first, piece in itertools.product(range(32), range(0, fragment.values, 8), range(fragment.pieces)):
        columns = [fragment.column(lane, 1, first + i, piece) for i in range(8)]
        assert columns == list(range(columns[0], columns[0] + 8))


@pytest.mark.parametrize("config", CONFIGS, ids=names)
def test_staged_results_lie_where_the_store_s_tensor_map_reads_them(config: GemmConfig) -> None:
    derivation = derive(config)
    fragment, addresses, report = derivation.fragment, derivation.staging_addresses, derivation.staging_report
    assert addresses is not None
    assert report is not None
    assert report.ratio == 1
    maps = derivation.tensor_maps(1008, 1008, 1008)
    assert maps.d is not None
    assert maps.d_tail is not None
    wide, chunk = panel_columns(config.problem), 16 // result_bytes(config.problem)
    pieces = wide // fragment.columns
    total = fragment.pieces * fragment.columns
    for piece in range(fragment.pieces):
        first_of_panel = piece - piece % pieces
        last = first_of_panel * fragment.columns + wide > total
        tensor_map = maps.d_tail if last else maps.d
        width = min(wide, total - first_of_panel * fragment.columns)
        assert tensor_map.box == (width, panel_rows(config))
        for lane, number in itertools.product(range(32), range(fragment.values // chunk)):
            row = fragment.row(lane, 2) - fragment.row(0, 2)
            column = fragment.column(lane, 2, chunk * number, piece) - fragment.column(0, 2, 0, first_of_panel)
            assert addresses(lane, number, piece % pieces) == tensor_map.byte_of((column, row))


@pytest.mark.parametrize(
    ("a_in", "a", "b", "k", "pair"),
    [
        ("tensor", "bf16", "bf16", 64, False),
        ("tensor", "tf32", "tf32", 64, True),
        ("tensor", "s8", "u8", 128, False),
        ("registers", "f16", "f16", 128, False),
        ("registers", "e4m3", "bf16", 64, False),
        ("registers", "u8", "f16", 128, False),
        ("registers", "e5m2", "e4m3", 128, False),
    ],
)  # fmt: skip
def test_slots_of_a_in_tensor_memory_lie_where_the_multiply_reads_them(
    a_in: str, a: str, b: str, k: int, pair: bool
) -> None:
    """Row i in lane i, elements of K packed in columns, 8 columns an instruction (PTX ISA 9.1, section 9.7.16.10.1)."""
    problem = Problem(a=a, b=b, d="f32")
    config = BASE.replace(
        a_in=a_in, problem=problem, tile_k=k, tile_n=64, pair=pair, tile_m=256 if pair else 128, stages=3
    )
    derivation = derive(config)
    left, operand = derivation.left, derivation.a
    assert left is not None
    bits = 32 if a == "tf32" else 16 if b in ("bf16", "f16") else 8
    depth = instruction_k(problem)
    assert left.columns * 32 == k * bits
    assert derivation.k_steps * 8 == left.columns
    for slot, step in itertools.product(range(3), range(derivation.k_steps)):
        assert left.first + left.slots(slot, step) == derivation.plan[f"A of slot {slot}"].column + 8 * step
    for row, element in itertools.product((0, 1, 37, 127), range(depth)):
        word, part = divmod(int(left.element(row, element)), 32 // bits)
        assert (word >> 16, word & 0xFFFF, part) == (row, element * bits // 32, element * bits % 32 // bits)
    chunk = 128 // operand.bits
    for row, number in itertools.product(range(128), range(k // chunk)):
        assert left.chunks(row, number) == operand.bytes_of(operand.layout(row, number * chunk))
    assert left.report.ratio == 1


def test_the_instruction_descriptor_says_what_is_multiplied() -> None:
    for config in CONFIGS:
        problem = config.problem
        word = decode_instruction_descriptor(derive(config).instruction_descriptor, derive(config).kind)
        assert (word.m, word.n, word.a, word.b) == (config.tile.m, config.tile.n, problem.a, problem.b)
        assert word.d == ("s32" if problem.a in ("s8", "u8") else "f32")
        assert (word.a_major, word.b_major) == (config.problem.a_major, config.problem.b_major)


@pytest.mark.parametrize(
    ("parameters", "a", "b", "idesc"),
    [
        # tests/data/cute_layouts.txt: CuTe's traits and descriptors, printed by its headers.
        ({"tile_m": 64, "tile_n": 128}, 0x4000404000010000, 0x4000404000010000, 0x04200490),
        ({"tile_n": 256}, 0x4000404000010000, 0x4000404000010000, 0x08400490),
        ({"tile_m": 256, "tile_n": 256, "pair": True}, 0x4000404000010000, 0x4000404000010000, 0x10400490),
        # Constants in PTX that NVIDIA's CuTe DSL 4.8.1 emits for a pair's MN-major tile of 256 x 128 x 64. (B is one atom wide, so that
        # nothing reads its LBO.)
        (
            {"tile_m": 256, "tile_n": 128, "pair": True, "problem": Problem(a_major="mn", b_major="mn")},
            0x4000404002000000,
            0x4000404000000000,
            0x10218490,
        ),
        # f16.
        (
            {"tile_n": 128, "problem": Problem(a="f16", b="f16", d="f16")},
            0x4000404000010000,
            0x4000404000010000,
            0x08200010,
        ),
    ],
)
def test_descriptors_are_those_of_nvidia_s_own_code(parameters: dict[str, object], a: int, b: int, idesc: int) -> None:
    derivation = derive(BASE.replace(**parameters))
    assert (derivation.a.descriptor, derivation.b.descriptor) == (a, b)
    assert derivation.instruction_descriptor == idesc


def test_two_accumulators_never_share_a_column() -> None:
    for (pair, m), n in itertools.product(FORMS, range(16, 257, 16)):
        derivation = derive(BASE.replace(pair=pair, tile_m=m, tile_n=n, accumulators=2))
        columns = n // 2 if (pair, m) == (True, 128) else n
        first, second = (derivation.accumulator_offsets(i) for i in range(2))
        assert second - first >= columns
        assert second + columns <= derivation.plan.columns <= 512
        assert derivation.plan.columns & (derivation.plan.columns - 1) == 0


def test_parts_of_shared_memory_follow_one_another_where_the_hardware_wants_them() -> None:
    for config in CONFIGS:
        derivation = derive(config)
        end = 0
        for use, offset, length in derivation.shared_map:
            assert offset == end
            end += length
            # Tiles and panels start where the swizzle's pattern does; barriers and answers at multiples of 16.
            assert offset % (16 if use in ("barriers", "answers", "tensor memory's address") else 1024) == 0
        assert derivation.shared_bytes == end + 1024 <= SHARED_LIMIT
        assert derivation.a.slot_bytes % 1024 == 0


@pytest.mark.parametrize("tile_n", [16, 32, 48, 80])
def test_slots_of_narrow_tiles_start_where_the_swizzle_s_pattern_does(tile_n: int) -> None:
    for (pair, m), k, (_, b_major) in itertools.product(FORMS, (32, 64, 128), MAJORS):
        config = BASE.replace(pair=pair, tile_m=m, tile_n=tile_n, tile_k=k, problem=Problem(b_major=b_major))
        operand = derive(config).b
        repeat = {"none": 16, "32B": 256, "64B": 512, "128B": 1024}[operand.swizzle]
        assert operand.slot_bytes % repeat == 0
        assert operand.box_bytes % repeat == 0


BROKEN = [
    (
        {"tile_m": 256},
        "tile_m=256: one CTA multiplies 64 or 128 rows at a time; nearest 128, or pair=True for two CTAs",
    ),
    ({"tile_m": 64, "pair": True}, "tile_m=64: a pair multiplies 128 or 256 rows at a time; nearest 128"),
    ({"tile_n": 24}, "tile_n=24: must be a multiple of 16 from 16 to 256"),
    ({"tile_n": 272}, "nearest 256"),
    ({"tile_k": 48}, "tile_k=48: must be 32, 64, 128 or 256 elements of K"),
    ({"stages": 0}, "stages=0: must be from 1 to 16 slots"),
    ({"stages": 9}, "stages=4 fits"),
    ({"accumulators": 3}, "accumulators=3: must be 1, or 2"),
    ({"launch": "later"}, "launch='later': must be 'static', 'clc' or 'one'"),
    ({"launch": "placed"}, "must be 'static', 'clc' or 'one', and 'placed' is Hopper's"),
    ({"order": "hilbert"}, "order='hilbert': must be"),
    ({"group_m": 0}, "group_m=0: must be from 1 to 1024"),
    ({"store": "fast"}, "store='fast': must be"),
    ({"buffers": 5}, "buffers=5: must be from 1 to 4 panels"),
    ({"cluster_m": 3}, "cluster=3x1: must be 1x1, 2x1, 1x2, 2x2, 4x1 or 1x4 tiles"),
    ({"cluster_m": 4, "tile_n": 16}, "tile_n=16: 4 tiles of a cluster share 16 rows in each CTA and load a slice each"),
    ({"pair": 3}, "pair=3: must be 0 or 1"),
    ({"consumers": 1}, "consumers=1: is a parameter of the Hopper kernels"),
    ({"swap": True}, "swap=True: is a parameter of the Hopper kernels"),
    ({"schedule_kind": "pingpong"}, "schedule_kind='pingpong': is a parameter of the Hopper kernels"),
    (
        {"problem": Problem(a="f64", b="f64")},
        "a='f64': this type has no Blackwell kernel; there is bf16, f16, tf32, e4m3",
    ),
    ({"problem": Problem(a="f32", b="f32")}, 'float32 operands are multiplied as "tf32" (10 fraction bits)'),
    ({"problem": Problem(d="tf32")}, "d='tf32': this type has no Blackwell kernel; there is bf16, f16, f32"),
    ({"problem": Problem(a="f16")}, "b='bf16': no kind of tcgen05.mma multiplies it with f16; b may be f16"),
    (
        {"problem": Problem(a="e4m3", b="s8")},
        "b='s8': no kind of tcgen05.mma multiplies it with e4m3; b may be e4m3, e5m2, e2m3, e3m2 or e2m1",
    ),
    (
        {"problem": Problem(b="s8")},
        "b='s8': no kind of tcgen05.mma multiplies it with bf16; b may be bf16; exchange the operands",
    ),
    (
        {"problem": Problem(a="s8")},
        "a_in='shared': a of s8 becomes bf16 on its way through registers; \"registers\" works",
    ),
    ({"a_in": "cache"}, 'a_in=\'cache\': must be one of "shared", "tensor", "registers"'),
    ({"a_in": "tensor", "tile_m": 64}, "a_in='tensor': takes 128 rows of A in each CTA, a lane of tensor memory each"),
    (
        {"a_in": "tensor", "stationary": True},
        "a_in='tensor': stands in each quarter of lanes for the weight-stationary",
    ),
    (
        {"a_in": "tensor", "problem": Problem(a_major="mn")},
        "a_in='tensor': reads rows of A, which lie K-major in tensor memory",
    ),
    (
        {"a_in": "tensor", "problem": Problem(a="e2m1", b="e4m3"), "tile_k": 128, "stages": 2},
        "a_in='tensor': is not served for e2m1",
    ),
    (
        {"a_in": "tensor", "problem": Problem(a="nvfp4", b="nvfp4"), "tile_n": 128},
        "a_in='tensor': is not served beside scale factors (nvfp4)",
    ),
    (
        {"a_in": "registers", "pair": True, "tile_m": 256},
        "a_in='registers': is for one CTA: of a pair's loads only the leader",
    ),
    ({"a_in": "registers", "cluster_n": 2}, "a_in='registers': is for tiles that load their A alone"),
    (
        {"a_in": "tensor", "accumulators": 2, "stages": 2},
        "576 columns of tensor memory (64 of them for the slots of A), and an SM has 512",
    ),
    ({"arch": "sm_90a", "a_in": "tensor"}, "a_in='tensor': is a parameter of the Blackwell kernels"),
    ({"problem": Problem(d="s32")}, "d='s32': is what sums of s8 and u8 are, and a is bf16; d=\"f32\""),
    (
        {"problem": Problem(a="s8", b="s8"), "arch": "sm_103a"},
        "a='s8': sm_103a has no kind::i8 (ptxas 13.0 refuses it); arch='sm_100a' has it",
    ),
    (
        {"problem": Problem(a="e2m1", b="e4m3", a_major="mn"), "tile_k": 128},
        "a_major='mn': tcgen05 reads e2m1 only K-major",
    ),
    (
        {"problem": Problem(a="e4m3", b="e2m1", m=8, n=8, k=192), "tile_k": 128},
        "k=192: must be a multiple of 128: the copy engine takes rows of B (e2m1) in boxes of 128 elements",
    ),
    ({"problem": Problem(a="e3m2", b="e4m3"), "stages": 2}, "tile_k=64: the copy engine brings e3m2 in boxes of 128"),
    (
        {"problem": Problem(a="s8", b="s8", d="s32"), "pair": True, "tile_m": 256, "tile_n": 48, "stages": 2},
        "tile_n=48: kind::i8 of a pair takes multiples of 32 (PTX ISA 9.1, table 39); nearest 32, 64",
    ),
    (
        {"problem": Problem(a="e4m3", b="e4m3", b_major="mn"), "pair": True, "tile_m": 256, "tile_n": 48, "stages": 2},
        "tile_n=48: kind::f8f6f4 of a pair with an MN-major B of 8 bits takes multiples of 32",
    ),
    (
        {"problem": Problem(a="tf32", b="tf32", b_major="mn"), "tile_n": 48, "stages": 2},
        "tile_n=48: MN-major tf32 lies in runs of 32 rows, and a CTA loads 48 rows of B; a multiple of 32 works",
    ),
    (
        {"problem": Problem(d="s8"), "tile_m": 64, "tile_n": 48, "stages": 2},
        "tile_n=48: with a staged D of s8 a thread writes whole 16-byte chunks: must be a multiple of 32 here",
    ),
    ({"tile_m": 32}, "tile_m=32: one CTA multiplies 64 or 128 rows at a time; nearest 64, or stationary=True for few"),
    ({"stationary": True, "tile_m": 256}, "tile_m=256: one CTA multiplies 32, 64 or 128 rows at a time; nearest 128"),
    (
        {"stationary": True, "tile_n": 96},
        "tile_n=96: kind::f16 of one CTA, weight-stationary, takes 64, 128 or 256 (PTX ISA 9.1, table 39); nearest 64",
    ),
    ({"stationary": True, "pair": True, "tile_m": 128}, "stationary=True: tcgen05.mma.ws is for one CTA"),
    (
        {"stationary": True, "problem": Problem(a="nvfp4", b="nvfp4"), "tile_n": 128, "stages": 2},
        "stationary=True: tcgen05.mma.ws has no kind::mxf4nvf4",
    ),
    ({"stationary": 2}, "stationary=2: must be 0 or 1"),
    ({"arch": "sm_90a", "stationary": True}, "stationary=True: is a parameter of the Blackwell kernels"),
    ({"fusion": Fusion(gated=True)}, "store='tma': with gated pairs, a pair's one result is stored from registers"),
    ({"fusion": Fusion(gated=True), "problem": Problem(m=8, n=7, k=8)}, "n=7: with gated pairs, columns come in pairs"),
    ({"fusion": Fusion(scale_a="block", scale_b="block")}, "scale_a='block': float32 scales of blocks of K have no"),
    ({"promote": 64}, "promote=64: sums are float32 in tensor memory, with nothing to be promoted to"),
    ({"problem": Problem(a_major="row")}, "a_major='row': must be \"k\""),  # type: ignore[arg-type]
    ({"problem": Problem(m=8, n=12, k=8)}, "store='tma': TMA stores whole 16-byte chunks"),
    ({"problem": Problem(m=0, n=8, k=8)}, "m=0: must be at least 1"),
]


@pytest.mark.parametrize(("parameters", "words"), BROKEN, ids=[words[:24] for _, words in BROKEN])
def test_a_broken_rule_is_named_with_what_works(parameters: dict[str, object], words: str) -> None:
    config = GemmConfig(arch="sm_100a").replace(**parameters)
    assert [line for line in config.problems() if words in line], config.problems()


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Problem(m=8, n=8, k=12), "k=12: must be a multiple of 8: TMA wants rows of A (K-major) and B (K-major)"),
        (Problem(m=12, n=8, k=8, a_major="mn"), "m=12: must be a multiple of 8: TMA wants rows of A (MN-major)"),
        (Problem(m=8, n=8, k=24, a="e4m3", b="e4m3"), "k=24: must be a multiple of 16: TMA wants rows"),
    ],
)
def test_sizes_that_need_a_copy_to_padded_rows_are_named(problem: Problem, words: str) -> None:
    assert words in str(next(plain_violations(problem)))
    assert GemmConfig(arch="sm_100a", problem=problem).replace(stages=1).problems() == []


def test_mn_major_operands_free_k_of_its_multiple() -> None:
    assert list(plain_violations(Problem(m=8, n=8, k=13, a_major="mn", b_major="mn"))) == []


def test_the_architectures_share_one_predicate() -> None:
    assert "wgmma" in "\n".join(GemmConfig(arch="sm_90a").replace(tile_n=204).problems())
    assert "tcgen05" in "\n".join(GemmConfig(arch="sm_100a").replace(tile_n=204).problems())
    assert GemmConfig(arch="sm_103a").problems() == []
    assert "sm_100a" in GemmConfig(arch="sm_80").problems()[0]


def test_every_rung_is_valid_and_adds_one_idea() -> None:
    ladder = rungs()
    assert [rung.number for rung in ladder] == list(range(10))
    for rung in ladder:
        assert rung.config.problems() == []
    for before, after in itertools.pairwise(ladder[3:]):
        assert before.config != after.config


@pytest.mark.parametrize(("m", "n"), [(2, 1), (1, 2), (2, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize(("pair", "tile_m"), FORMS)
def test_slices_of_a_cluster_put_every_element_where_the_tile_s_layout_says(
    m: int, n: int, pair: bool, tile_m: int
) -> None:
    for a, b in MAJORS:
        problem = Problem(a_major=a, b_major=b)
        config = BASE.replace(pair=pair, tile_m=tile_m, tile_n=128, cluster_m=m, cluster_n=n, problem=problem)
        derivation = derive(config)
        maps = derivation.tensor_maps(1008, 1008, 1008)
        for tensor_map, operand in ((maps.a, derivation.a), (maps.b, derivation.b)):
            assert tensor_map.problems() == []
            assert operand.slice_rows * (n if operand.name == "A" else m) == operand.rows
            for row in range(0, operand.rows, 3):
                part, within_slice = divmod(row, operand.slice_rows)
                for k in range(0, config.tile.k, 7):
                    along, across = (k, within_slice) if operand.major == "k" else (within_slice, k)
                    box, within = divmod(along, operand.box_span)
                    start = part * operand.slice_bytes + box * operand.box_step
                    # Where the box starts no multiple of its pattern, the swizzle still acts on the address: look there.
                    assert start % 1024 == 0 or operand.swizzle != "128B"
                    assert start + tensor_map.byte_of((within, across)) == operand.bytes_of(operand.layout(row, k))
