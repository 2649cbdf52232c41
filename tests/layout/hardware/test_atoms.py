"""The registry lists every atom once, with layouts that cover what the instruction moves."""

from __future__ import annotations

from stridewright.layout import size
from stridewright.layout.hardware import atoms


def test_families_are_complete() -> None:
    everything = atoms()
    assert len(everything) > 1000
    for family in ("wgmma.m64n256k16.f32.bf16.bf16.ss", "wgmma.m64n8k32.s32.u8.s8.rs", "mma.m16n8k16.f32.bf16"):
        assert family in everything
    for family in (
        "ldmatrix.x4.trans",
        "stmatrix.x2",
        "movmatrix.trans",
        "tcgen05.ld.16x256b.x32",
        "tcgen05.cp.4x256b",
    ):
        assert family in everything
    for kind in ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"):
        assert atoms(f"tcgen05.mma.{kind}.")


def test_every_atom_says_shape_types_source_and_layouts() -> None:
    for name, atom in atoms().items():
        assert atom.name == name
        assert atom.shape
        assert atom.types
        assert atom.layouts
        assert atom.source
        assert str(atom)


def test_result_layouts_cover_their_tile() -> None:
    for atom in atoms("mma").values():
        assert int(size(atom.layout("D"))) == atom.shape[0] * atom.shape[1], atom.name
    for atom in atoms("tcgen05.ld.").values():
        assert int(size(atom.layout("registers"))) == int(size(atom.layout("value_id"))), atom.name
