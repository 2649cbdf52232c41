"""Instruction descriptors against CuTe's and the CuTe DSL's words, and against PTX's tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.layout.hardware import (
    HardwareError,
    InstructionDescriptor,
    decode_instruction_descriptor,
    instruction_descriptor,
    mma_operand_layouts,
)
from stridewright.layout.hardware.fragments import (
    wgmma_a_layout,
    wgmma_d_layout,
    wgmma_smem_a_layout,
    wgmma_smem_b_layout,
)
from stridewright.layout.hardware.instruction_descriptors import (
    DISABLE_OUTPUT_LANE_REGISTERS,
    KINDS,
    input_scale_problems,
    legal_m,
    legal_n,
)

from .cute_oracle import TEXT, blocks, layout

TYPES = {"bf": "bf16", "hf": "f16", "float": "f32", "tf": "tf32", "int8_t": "s8", "uint8_t": "u8", "int32_t": "s32"}
KIND_OF = {"F16BF16": "f16", "TF32": "tf32", "S8": "i8", "F8F6F4": "f8f6f4", "MXF8F6F4": "mxf8f6f4", "MXF4": "mxf4"}


def sm100_blocks() -> list[tuple[str, dict[str, str]]]:
    return [(name, fields) for name, fields in blocks("MMA") if name.startswith("SM100_MMA_")]


def parsed(name: str) -> tuple[str, int, int, int, int, dict[str, str]]:
    """(kind, m, n, cta_group, k, types and majors) of a CuTe atom's name."""
    match = re.fullmatch(r"SM100_MMA_(\w+?)(_2x1SM)?_(SS|TS)<(.*)>", name)
    assert match, name
    arguments = match.group(4).split(",")
    numbers = [int(x) for x in arguments if x.isdigit()]
    kind = KIND_OF[match.group(1)]
    words = [TYPES.get(x, x) for x in arguments if not x.isdigit()]
    majors = [x.rstrip("_").lower() for x in arguments if x.rstrip("_") in ("K", "MN")]
    extra = {"a": words[0], "b": words[1], "d": words[2]}
    if majors:
        extra |= {"a_major": majors[0], "b_major": majors[1]}
    k = {"f16": 16, "tf32": 8, "mxf4": 64}.get(kind, 32)
    return kind, numbers[0], numbers[1], 2 if match.group(2) else 1, k, extra


def test_every_printed_tcgen05_trait_and_its_word() -> None:
    words = 0
    for name, fields in sm100_blocks():
        kind, m, n, group, k, extra = parsed(name)
        assert fields["MNK"].replace("_", "") == f"({m},{n},{k})"
        a, b, c = mma_operand_layouts(m, n, k, group)
        assert (a, b, c) == tuple(layout(fields[key]) for key in ("ALayout", "BLayout", "CLayout")), name
        assert fields["ThrID"] == ("_1:_0" if group == 1 else "_2:_1")
        if "idesc" in fields:
            assert instruction_descriptor(kind, m, n, cta_group=group, **extra) == int(fields["idesc"], 16), name
            words += 1
    assert len(sm100_blocks()) == 19
    assert words == 14


def test_every_printed_word_of_the_other_kinds() -> None:
    lines = re.findall(r"^  idesc (\w+) (\w+),(\w+),(\w+)[ ,](\d+)[x,](\d+)\s+(0x[0-9a-f]+)$", TEXT, re.MULTILINE)
    assert len(lines) == 7
    for kind, a, b, last, m, n, word in lines:
        scaled = last.startswith("ue")
        extra: dict[str, Any] = {"scale": last} if scaled else {"d": last}
        assert instruction_descriptor(kind.lower(), int(m), int(n), a, b, **extra) == int(word, 16)


def test_every_printed_wgmma_trait() -> None:
    seen = [(name, fields) for name, fields in blocks("MMA") if name.startswith("SM90")]
    assert len(seen) == 6
    for name, fields in seen:
        match = re.search(r"MMA_64x(\d+)x(\d+)_F32(BF16|F16|E4M3|TF32)\w+?_(SS|RS)", name)
        assert match, name
        n, dtype = int(match.group(1)), match.group(3).lower()
        assert layout(fields["CLayout"]) == wgmma_d_layout(n, dtype)
        a = wgmma_a_layout(dtype) if match.group(4) == "RS" else wgmma_smem_a_layout(dtype)
        assert layout(fields["ALayout"]) == a
        assert layout(fields["BLayout"]) == wgmma_smem_b_layout(n, dtype)
        assert fields["MNK"].replace("_", "") == f"(64,{n},{match.group(2)})"
        assert fields["ThrID"] == "_128:_1"


# Words that CuTe prints or the CuTe DSL's PTX holds, by their arguments.
WORDS: list[tuple[int, dict[str, Any]]] = [
    (0x04200490, {"kind": "f16", "m": 64, "n": 128, "a": "bf16"}),
    (0x08200490, {"kind": "f16", "m": 128, "n": 128, "a": "bf16"}),
    (0x08400490, {"kind": "f16", "m": 128, "n": 256, "a": "bf16"}),
    (0x10400490, {"kind": "f16", "m": 256, "n": 256, "a": "bf16", "cta_group": 2}),
    (0x10218490, {"m": 256, "n": 128, "a": "bf16", "a_major": "mn", "b_major": "mn", "cta_group": 2}),
    (0x08400000, {"m": 128, "n": 256, "a": "f16", "d": "f16"}),
    (0x08200010, {"m": 128, "n": 128, "a": "f16", "d": "f32"}),
    (0x08400910, {"kind": "tf32", "m": 128, "n": 256}),
    (0x10200910, {"kind": "tf32", "m": 256, "n": 128, "cta_group": 2}),
    (0x08400010, {"kind": "f8f6f4", "m": 128, "n": 256, "a": "e4m3"}),
    (0x084004A0, {"kind": "i8", "m": 128, "n": 256, "a": "s8"}),
    (0x08400420, {"kind": "i8", "m": 128, "n": 256, "a": "u8", "b": "s8"}),
    (0x08A00000, {"kind": "mxf8f6f4", "m": 128, "n": 128, "a": "e4m3"}),
    (0x10C00000, {"kind": "mxf8f6f4", "m": 256, "n": 256, "a": "e4m3", "cta_group": 2}),
    (0x08A00480, {"kind": "mxf4", "m": 128, "n": 128}),
    (0x08200480, {"kind": "mxf4nvf4", "m": 128, "n": 128}),
    (0x10400480, {"kind": "mxf4nvf4", "m": 256, "n": 256, "cta_group": 2}),
    (0x08400490 | 0x2000, {"m": 128, "n": 256, "a": "bf16", "negate_a": True}),
    (0x08A00000 | 3 << 29 | 3 << 4, {"kind": "mxf8f6f4", "m": 128, "n": 128, "scale_a_id": 3, "scale_b_id": 3}),
]


@pytest.mark.parametrize(("word", "arguments"), WORDS, ids=[f"{word:#010x}" for word, _ in WORDS])
def test_words_seen_in_nvidias_code(word: int, arguments: dict[str, Any]) -> None:
    assert instruction_descriptor(**arguments) == word
    assert decode_instruction_descriptor(word, arguments.get("kind", "f16")).encode() == word


@st.composite
def descriptors(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    kind = draw(st.sampled_from(KINDS))
    group = draw(st.sampled_from([1, 2]))
    arguments: dict[str, Any] = {
        "m": draw(st.sampled_from(legal_m(kind, group))),
        "n": draw(st.sampled_from(legal_n(kind, group))),
        "sparse": draw(st.booleans()),
    }
    if kind in ("f16", "tf32"):
        arguments |= {"a_major": draw(st.sampled_from(["k", "mn"])), "negate_b": draw(st.booleans())}
    if kind == "i8":
        arguments |= {"saturate": draw(st.booleans()), "a": draw(st.sampled_from(["u8", "s8"]))}
    if kind.startswith("mx"):
        arguments |= {"scale_a_id": draw(st.sampled_from([0, 2])), "scale_b_id": draw(st.sampled_from([0, 2]))}
    return kind, arguments


@given(descriptors())
def test_decode_inverts_encode(case: tuple[str, dict[str, Any]]) -> None:
    kind, arguments = case
    word = instruction_descriptor(kind, **arguments)
    decoded = decode_instruction_descriptor(word, kind)
    assert decoded.encode() == word
    for name, value in arguments.items():
        assert getattr(decoded, name) == value


@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
def test_any_word_decodes_to_itself_or_is_refused(word: int, kind: str) -> None:
    try:
        decoded = decode_instruction_descriptor(word, kind)
    except HardwareError:
        return
    assert decoded.encode() == word


# PTX ISA 9.1 table 39: kind -> (cta_group 1 M, N), (cta_group 2 M, N), dense K.
def steps(first: int, step: int) -> tuple[int, ...]:
    return tuple(range(first, 257, step))


TABLE = {
    **dict.fromkeys(("f16", "f8f6f4", "tf32"), ((64, 128), steps(8, 8), (128, 256), steps(16, 16))),
    "i8": ((64, 128), (8, 16, 24, 32, *range(48, 257, 16)), (128, 256), steps(32, 32)),
    **dict.fromkeys(("mxf8f6f4", "mxf4", "mxf4nvf4"), ((128,), steps(8, 8), (128, 256), steps(16, 16))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_legal_shapes_are_the_tables(kind: str) -> None:
    m1, n1, m2, n2 = TABLE[kind]
    for group, ms, ns in ((1, m1, n1), (2, m2, n2)):
        for m in (16, 32, 64, 96, 128, 192, 256, 512):
            for n in range(0, 264, 4):
                accepted = True
                try:
                    instruction_descriptor(kind, m, n, cta_group=group)
                except HardwareError:
                    accepted = False
                assert accepted == (m in ms and n in ns), (kind, group, m, n)
    ws = (32, 64, 128) if not kind.startswith("mx") else ()
    assert legal_m(kind, 1, True) == ws
    assert legal_n(kind, 1, True) == ((64, 128, 256) if ws else ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "f17"}, "nearest f16"),
        ({"m": 128, "n": 204, "cta_group": 1}, "nearest 200, 208"),
        ({"kind": "mxf4", "a_major": "mn"}, "K-major only"),
        ({"kind": "f8f6f4", "a": "e2m3", "a_major": "mn"}, "K-major only"),
        ({"kind": "f16", "a": "bf16", "d": "f16"}, "bf16 accumulates in f32"),
        ({"kind": "f16", "a": "bf16", "b": "f16"}, "one type for A"),
        ({"kind": "i8", "negate_a": True}, "not for kind i8"),
        ({"kind": "f16", "saturate": True}, "kind i8 only"),
        ({"kind": "f16", "scale": "ue8m0"}, "takes no scale factors"),
        ({"kind": "mxf4", "scale": "ue4m3"}, "takes scales ue8m0"),
        ({"kind": "mxf4nvf4", "scale_a_id": 1}, "takes 0, 2"),
        ({"kind": "f16", "max_shift": 4}, "0, 8, 16 or 32"),
        ({"kind": "mxf4", "k": 96, "sparse": True}, "dense only"),
        ({"kind": "f16", "k": 32}, "has K 16"),
        ({"kind": "f8f6f4", "n": 24, "b_major": "mn", "cta_group": 1}, "transposed 8-bit B"),
        ({"kind": "f16", "sparsity_selector": 1}, "only with sparse"),
        ({"kind": "mxf4", "ws": True, "cta_group": 1}, "has no such form"),
    ],
)
def test_rules_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(HardwareError, match=message):
        instruction_descriptor(**arguments)


@pytest.mark.parametrize(
    ("word", "kind"),
    [(0x08400490 | 1 << 6, "f16"), (0x08400490 | 1 << 29, "f16"), (0x084004F0, "f16"), (1 << 32, "f16")],
)
def test_undefined_words_are_refused(word: int, kind: str) -> None:
    with pytest.raises(HardwareError):
        decode_instruction_descriptor(word, kind)


def test_warnings_name_what_nvidias_code_avoids() -> None:
    assert InstructionDescriptor("f16", 128, 24, "bf16", "bf16", "f32").warnings(1)
    assert not InstructionDescriptor("f16", 64, 24, "bf16", "bf16", "f32").warnings(1)
    assert not InstructionDescriptor("f16", 128, 32, "bf16", "bf16", "f32").warnings(2)


def test_scale_input_d_and_the_disable_output_lane_mask() -> None:
    assert [bool(input_scale_problems("tf32", scale)) for scale in (-1, 0, 15, 16)] == [True, False, False, True]
    assert input_scale_problems("f8f6f4", 1)
    # One bit for each of 128 lanes, of each CTA of a pair.
    assert {group: group * 128 // 32 for group in (1, 2)} == DISABLE_OUTPUT_LANE_REGISTERS
