"""The number formats of the Blackwell GEMM: which kind of tcgen05.mma multiplies them, and what an element takes in memory.

Knows formats and kinds (their encodings are the hardware layer's); knows nothing of tiles, of CUDA source or of arrays.
"""

from __future__ import annotations

from stridewright.layout.hardware.dtypes import data_type
from stridewright.layout.hardware.instruction_descriptors import DENSE_K, OPERAND_CODES
from stridewright.layout.hardware.scale_factors import SCALED_TYPES, scaled_kind

from .config import RESULT_FORMATS, Problem

DENSE_KINDS = ("f16", "tf32", "f8f6f4", "i8")
"""Kinds without scale factors (PTX ISA 9.1, section 9.7.16.10)."""

KIND_OF = {dtype: kind for kind in DENSE_KINDS for dtype in OPERAND_CODES[kind]}
"""The kind that multiplies operands of a format."""

OPERANDS = ("bf16", "f16", "tf32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "s8", "u8")
"""Formats of A and B. tf32 is float32 in memory, rounded to 10 fraction bits on its way."""

SCALED_KINDS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
"""Kinds that multiply elements by factors of blocks of K (PTX ISA 9.1, section 9.7.16.10.5)."""

RESULTS = {
    kind: tuple(d for d in RESULT_FORMATS if d != "s32" or kind == "i8") for kind in (*DENSE_KINDS, *SCALED_KINDS)
}
"""Formats of D by kind: sums of integers alone may stay integers of 32 bits."""

RATE = {"f16": 1.0, "tf32": 0.5, "f8f6f4": 2.0, "i8": 2.0, "mxf8f6f4": 2.0, "mxf4": 4.0, "mxf4nvf4": 4.0}
"""Dense multiply-adds of an SM and clock, beside those of 16-bit operands (NVIDIA, DGX B200 data sheet: 2.25 PFLOP/s bf16
dense a GPU, 1.13 tf32, 4.5 fp8 and int8, 9 fp4)."""

CONVERTED = ("e4m3", "e5m2", "s8", "u8")
"""Formats of A that bf16 and f16 hold exactly, in which they are multiplied with a B of those: A is converted on its way."""

PADDED_K = 128
"""Elements of K that one box of the padded 4- and 6-bit types holds (CUDA driver API, cuTensorMapEncodeTiled)."""


def kind_of(problem: Problem) -> str:
    """The kind of tcgen05.mma that multiplies the problem's operands; "" where no kind takes both.

    >>> kind_of(Problem()), kind_of(Problem(a="e4m3", b="e2m1")), kind_of(Problem(a="s8", b="u8")), kind_of(Problem(b="s8"))
    ('f16', 'f8f6f4', 'i8', '')
    >>> kind_of(Problem(a="s8", b="bf16"))
    'f16'
    >>> kind_of(Problem(a="mxfp8", b="mxfp4")), kind_of(Problem(a="nvfp4", b="nvfp4"))
    ('mxf8f6f4', 'mxf4nvf4')
    """
    if problem.a in SCALED_TYPES or problem.b in SCALED_TYPES:
        return scaled_kind(problem.a, problem.b)
    kind = KIND_OF.get(multiplied(problem)[0], "")
    # Kind f16 has two formats and takes one of them for both (PTX ISA 9.1, table 42).
    mixed = kind == "f16" and multiplied(problem)[0] != problem.b
    return kind if KIND_OF.get(problem.b) == kind and not mixed else ""


def converts(problem: Problem) -> bool:
    """Whether A of 8 bits is multiplied in the format of a 16-bit B.

    >>> converts(Problem(a="s8", b="bf16")), converts(Problem(a="s8", b="s8"))
    (True, False)
    """
    return problem.a in CONVERTED and problem.b in ("bf16", "f16")


def multiplied(problem: Problem) -> tuple[str, str]:
    """A's and B's formats as the tensor core multiplies them: A of 8 bits in that of a 16-bit B.

    >>> multiplied(Problem(a="e4m3", b="bf16")), multiplied(Problem(a="e4m3", b="e5m2"))
    (('bf16', 'bf16'), ('e4m3', 'e5m2'))
    """
    if converts(problem):
        return problem.b, problem.b
    return element_of(problem.a), element_of(problem.b)


def element_of(dtype: str) -> str:
    """The format of the elements: of block-scaled ones without their factors.

    >>> element_of("bf16"), element_of("nvfp4")
    ('bf16', 'e2m1')
    """
    return SCALED_TYPES[dtype].element if dtype in SCALED_TYPES else dtype


def stored(dtype: str, kind: str) -> str:
    """The format as shared memory holds it: kinds f8f6f4 and mxf8f6f4 read 4-bit values from 16-byte chunks of which half is
    padding.

    >>> stored("e2m1", "f8f6f4"), stored("e4m3", "f8f6f4"), stored("mxfp4", "mxf8f6f4"), stored("mxfp4", "mxf4")
    ('e2m1_padded', 'e4m3', 'e2m1_padded', 'e2m1')
    """
    element = element_of(dtype)
    return "e2m1_padded" if element == "e2m1" and kind in ("f8f6f4", "mxf8f6f4") else element


def padded(dtype: str) -> bool:
    """Whether the copy engine spreads the format's elements in shared memory, one to a byte (types 16U4_ALIGN16B and
    16U6_ALIGN16B).

    >>> padded("e2m1_padded"), padded("e3m2"), padded("e2m1"), padded("e4m3")
    (True, True, False, False)
    """
    kind = data_type(dtype)
    return kind.smem_bits != kind.bits


def shared_bits(dtype: str) -> int:
    """Bits of an element in shared memory, padding included; ``dtype`` as ``stored`` gives it.

    >>> shared_bits("tf32"), shared_bits("e2m1_padded"), shared_bits("e2m1")
    (32, 8, 4)
    """
    return data_type(dtype).smem_bits


def operand_formats(problem: Problem) -> tuple[str, str]:
    """A's and B's formats as shared memory holds them.

    >>> operand_formats(Problem(a="e4m3", b="e2m1"))
    ('e4m3', 'e2m1_padded')
    """
    kind = kind_of(problem)
    return stored(problem.a, kind), stored(problem.b, kind)


def instruction_k(problem: Problem) -> int:
    """Elements of K that one tcgen05.mma takes: 32 bytes of them as shared memory holds them (PTX ISA 9.1, table 39).

    >>> instruction_k(Problem()), instruction_k(Problem(a="tf32", b="tf32")), instruction_k(Problem(a="e4m3", b="e4m3"))
    (16, 8, 32)
    """
    return DENSE_K[kind_of(problem)]


def accumulator_of(problem: Problem) -> str:
    """The accumulators' format: s32 of integers, else f32.

    >>> accumulator_of(Problem(a="s8", b="u8")), accumulator_of(Problem())
    ('s32', 'f32')
    """
    return "s32" if kind_of(problem) == "i8" else "f32"


def result_bytes(problem: Problem) -> int:
    """Bytes of an element of D.

    >>> result_bytes(Problem()), result_bytes(Problem(d="f32")), result_bytes(Problem(d="e4m3"))
    (2, 4, 1)
    """
    return data_type(problem.d).bits // 8


def panel_columns(problem: Problem) -> int:
    """Columns of a panel of D in shared memory: those of the 128 bytes of the swizzle's span.

    >>> panel_columns(Problem()), panel_columns(Problem(d="f32")), panel_columns(Problem(d="e4m3"))
    (64, 32, 128)
    """
    return 128 // result_bytes(problem)


def contiguous_unit(dtype: str) -> int:
    """Elements whose bytes in global memory are whole units of what TMA takes for the starts of rows: 16 bytes, and for the
    padded types 128 elements (CUDA driver API, cuTensorMapEncodeTiled).

    >>> contiguous_unit("bf16"), contiguous_unit("e4m3"), contiguous_unit("e3m2")
    (8, 16, 128)
    """
    return PADDED_K if padded(dtype) else 128 // data_type(dtype).bits
