"""Which byte every measured descriptor reads, and the bit fields."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.layout.hardware import HardwareError, MatrixDescriptor, decode_matrix_descriptor

DATA = Path(__file__).parents[2] / "data" / "h200"
SWIZZLES = {0: "none", 32: "32B", 64: "64B", 128: "128B"}


def test_every_measured_descriptor_reads_the_bytes_seen() -> None:
    data = np.load(DATA / "wgmma_descriptors.npz")
    arrays = {name: data[name] for name in data.files if name != "cases"}
    cases = json.loads(str(data["cases"]))
    assert len(cases) >= 1200
    for case in cases:
        descriptor = decode_matrix_descriptor(int(case["descriptor"], 16), "sm_90a")
        assert (descriptor.start, descriptor.leading, descriptor.stride) == (case["start"], case["lbo"], case["sbo"])
        assert descriptor.swizzle == SWIZZLES[case["swizzle"]]
        assert descriptor.base_offset == case["base_offset"]
        seen = arrays[case["array"]][case["index"]].astype(np.int64)
        read = descriptor.addresses(case["type"], case["major"].lower(), seen.shape[0], seen.shape[1])
        assert np.array_equal(read, seen), case


@given(
    st.sampled_from(["sm_90a", "sm_100a"]),
    st.integers(0, 0x3FFF),
    st.integers(0, 0x3FFF),
    st.integers(0, 0x3FFF),
    st.sampled_from(["none", "32B", "64B", "128B"]),
    st.integers(0, 7),
)
def test_decode_inverts_encode(arch: str, start: int, leading: int, stride: int, swizzle: str, base: int) -> None:
    descriptor = MatrixDescriptor(arch, start * 16, leading * 16, stride * 16, swizzle, base)
    assert decode_matrix_descriptor(descriptor.encode(), arch) == descriptor


@given(st.integers(0, 2**64 - 1))
def test_a_hopper_word_decodes_and_its_ignored_bits_change_nothing_read(word: int) -> None:
    descriptor = decode_matrix_descriptor(word, "sm_90a")
    assert descriptor.encode() | descriptor.ignored == word
    clean = decode_matrix_descriptor(descriptor.encode(), "sm_90a")
    assert np.array_equal(descriptor.addresses("bf16", "k", 16), clean.addresses("bf16", "k", 16))


def test_the_two_architectures_differ_in_bit_46_alone() -> None:
    for swizzle in SWIZZLES.values():
        hopper = MatrixDescriptor("sm_90a", 1024, 16, 512, swizzle).encode()
        blackwell = MatrixDescriptor("sm_100a", 1024, 16, 512, swizzle).encode()
        assert hopper ^ blackwell == 1 << 46


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("sm_90a", 8, 16, 16, "none"), "start=8: must be a multiple of 16"),
        (("sm_90a", 0, 1 << 18, 16, "none"), "leading=262144"),
        (("sm_90a", 0, 16, 16, "128B_atom_32B"), "sm_90a matrix descriptors have none, 32B, 64B, 128B"),
        (("sm_100a", 0, 16, 16, "none", 8), "base_offset=8"),
        (("sm_100a", 0, 16, 16, "none", 0, True), "sm_103a"),
        (("sm_80", 0, 16, 16, "none"), "has no matrix descriptors"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields: tuple[object, ...], message: str) -> None:
    with pytest.raises(HardwareError, match=message):
        MatrixDescriptor(*fields).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "word", [0x6000404000010000, 0x4000004000010000, 0x4010404000010000, 0x4020404000010000, 1 << 64, -1]
)
def test_words_tcgen05_does_not_define_are_refused(word: int) -> None:
    with pytest.raises(HardwareError):
        decode_matrix_descriptor(word, "sm_100a")


def test_base_offset_moves_the_pattern_and_does_nothing_without_a_swizzle() -> None:
    moved = MatrixDescriptor("sm_90a", 0, 16, 1024, "128B", 1).addresses("bf16", "k", 8)
    assert moved[1, 0] == 128
    plain = MatrixDescriptor("sm_90a", 0, 128, 256, "none", 0).addresses("bf16", "k", 8)
    assert np.array_equal(plain, MatrixDescriptor("sm_90a", 0, 128, 256, "none", 5).addresses("bf16", "k", 8))
