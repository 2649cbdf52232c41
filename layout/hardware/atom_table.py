"""Every hardware atom with its shape, types, layouts and source, as one table that can be printed.

Derived from the other modules of this folder; no number stands here for the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ..core import Layout
from . import fragments
from .dtypes import data_type
from .instruction_descriptors import (
    ACCUMULATORS,
    DENSE_K,
    OPERAND_CODES,
    SCALES,
    instruction_descriptor,
    legal_m,
    legal_n,
)
from .tensor_memory import accumulator_layout, data_path, mma_operand_layouts
from .tensor_memory_moves import LOAD_SHAPES, REPEATS, tensor_memory_access, tensor_memory_copies

_PTX_WGMMA = "PTX ISA 9.1 9.7.15.5; probed on an H200"
_PTX_MMA = "PTX ISA 9.1 9.7.14.5; probed on an H200 where its npz has it"
_PTX_MATRIX = "PTX ISA 9.1 9.7.14.5.15-16; probed on an H200"
_PTX_TCGEN05 = "PTX ISA 9.1 9.7.16; CuTe traits; not run on a Blackwell"


@dataclass(frozen=True)
class Atom:
    """One instruction: ``shape`` its sizes, ``types`` of its operands, ``layouts`` by operand name, ``arch`` the first
    that has it, ``source`` where the layouts come from, ``note`` what else is fixed.
    """

    name: str
    shape: tuple[int, ...]
    types: tuple[str, ...]
    layouts: tuple[tuple[str, Layout], ...]
    arch: str
    source: str
    note: str = ""

    def layout(self, operand: str) -> Layout:
        """The layout of an operand by its name."""
        return dict(self.layouts)[operand]

    def __str__(self) -> str:
        parts = " ".join(f"{name} {layout}" for name, layout in self.layouts)
        note = f" [{self.note}]" if self.note else ""
        return f"{'x'.join(map(str, self.shape))} {'.'.join(self.types)} {self.arch}: {parts}{note} ({self.source})"


def _wgmma_types() -> Iterator[tuple[str, str, str]]:
    """(d, a, b) of wgmma: PTX ISA 9.1 section 9.7.15.2."""
    yield from (("f32", "bf16", "bf16"), ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "tf32", "tf32"))
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            yield from (("f32", a, b), ("f16", a, b))
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            yield ("s32", a, b)


def _wgmma() -> Iterator[Atom]:
    for d, a, b in _wgmma_types():
        k = data_type(a).wgmma_k
        for n in fragments.wgmma_n_values(a):
            name = f"wgmma.m64n{n}k{k}.{d}.{a}.{b}"
            result = fragments.wgmma_d_layout(n, a)
            b_layout = fragments.wgmma_smem_b_layout(n, b)
            for source, a_layout in (("ss", fragments.wgmma_smem_a_layout(a)), ("rs", fragments.wgmma_a_layout(a))):
                layouts = (("A", a_layout), ("B", b_layout), ("D", result))
                yield Atom(f"{name}.{source}", (64, n, k), (d, a, b), layouts, "sm_90a", _PTX_WGMMA)


def _mma_sync() -> Iterator[Atom]:
    for shape in fragments.MMA_SHAPES:
        arguments = (shape.m, shape.n, shape.k, shape.dtype)
        layouts = (
            ("A", fragments.mma_a_layout(*arguments)),
            ("B", fragments.mma_b_layout(*arguments)),
            ("D", fragments.mma_d_layout(*arguments)),
        )
        for d in shape.accumulators:
            name = f"mma.{shape.name}.{d}.{shape.dtype}"
            yield Atom(name, arguments[:3], (d, shape.dtype, shape.dtype), layouts, f"sm_{shape.since}", _PTX_MMA)


def _matrix_moves() -> Iterator[Atom]:
    for op, layout_of, arch in (
        ("ldmatrix", fragments.ldmatrix_layout, "sm_75"),
        ("stmatrix", fragments.stmatrix_layout, "sm_90"),
    ):
        for matrices in (1, 2, 4):
            for trans in (False, True):
                name = f"{op}.x{matrices}" + (".trans" if trans else "")
                layouts = (("registers", layout_of(matrices, trans)), ("rows", fragments.ldmatrix_row_layout(matrices)))
                yield Atom(name, (8, 8, matrices), ("b16",), layouts, arch, _PTX_MATRIX)
    yield Atom(
        "movmatrix.trans", (8, 8), ("b16",), (("registers", fragments.movmatrix_layout()),), "sm_75", _PTX_MATRIX
    )


def _tcgen05_mma() -> Iterator[Atom]:
    for kind, codes in OPERAND_CODES.items():
        k = DENSE_K[kind]
        first = next(iter(codes)) if kind != "i8" else "s8"
        d = "f32" if "f32" in ACCUMULATORS[kind] else ACCUMULATORS[kind][0]
        scale = SCALES[kind][0] if kind in SCALES else ""
        for group, ws in ((1, False), (2, False), (1, True)):
            for m in legal_m(kind, group, ws):
                for n in legal_n(kind, group, ws):
                    a, b, c = mma_operand_layouts(m, n, k, group)
                    letter = data_path(m, group, ws)
                    layouts = (("A", a), ("B", b), ("D", c), ("TMEM", accumulator_layout(m, n, group, ws)))
                    word = instruction_descriptor(kind, m, n, first, first, d, scale=scale)
                    yield Atom(
                        f"tcgen05.mma.{kind}.cta_group{group}{'.ws' if ws else ''}.m{m}n{n}k{k}",
                        (m, n, k),
                        (d, "/".join(codes), scale) if scale else (d, "/".join(codes)),
                        layouts,
                        "sm_100a",
                        _PTX_TCGEN05,
                        f"data path {letter}, idesc 0x{word:08x} for {first}",
                    )


def _tcgen05_moves() -> Iterator[Atom]:
    for shape, (lanes, width, registers, largest) in LOAD_SHAPES.items():
        for repeat in REPEATS:
            if repeat > largest:
                break
            for packed in (False, True):
                access = tensor_memory_access(shape, repeat, packed)
                layouts = (("value_id", access.value_id), ("registers", access.registers))
                for op, suffix in (("ld", ".pack::16b"), ("st", ".unpack::16b")):
                    name = f"tcgen05.{op}.{shape}.x{repeat}" + (suffix if packed else "")
                    extent = (lanes, width * repeat)
                    note = f"{registers * repeat} registers"
                    yield Atom(name, extent, ("b32",), layouts, "sm_100a", _PTX_TCGEN05, note)
    for copy in tensor_memory_copies():
        parts = (("value_id", copy.value_id), ("source", copy.source), ("destination", copy.destination))
        size = tuple(int(part) for part in copy.shape.removesuffix("b").split("x"))
        yield Atom(f"tcgen05.cp.{copy.name}", size, ("b8",), parts, "sm_100a", _PTX_TCGEN05)


@cache
def _all() -> tuple[Atom, ...]:
    return (*_wgmma(), *_mma_sync(), *_matrix_moves(), *_tcgen05_mma(), *_tcgen05_moves())


def atoms(pattern: str = "") -> dict[str, Atom]:
    """All atoms whose name contains ``pattern``, by name, in the table's order.

    >>> print(atoms("wgmma.m64n128k16.f32.bf16")["wgmma.m64n128k16.f32.bf16.bf16.ss"].layout("D"))
    ((4,8,4),(2,2,16)):((128,1,16),(64,8,512))
    """
    return {atom.name: atom for atom in _all() if pattern in atom.name}
