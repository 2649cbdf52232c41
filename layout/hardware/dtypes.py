"""Number formats: their names, widths, and what the copy engine and the matrix units call them.

This module knows nothing of layouts. Names are the ones used everywhere in the package; a driver's enumerator
("BFLOAT16") is accepted wherever a name is.

Sources: cuda.h 13.0 (CUtensorMapDataType), PTX ISA 9.1 sections 9.7.15 (wgmma), 9.7.16 (tcgen05), 9.7.9.21 (cvt).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class DataType:
    """One number format.

    ``bits`` is the width of one value. ``smem_bits`` and ``gmem_bits`` are what one value takes in shared and in
    global memory when the copy engine moves it (they differ for the padded 4- and 6-bit types). ``tma`` is the
    enumerator CU_TENSOR_MAP_DATA_TYPE_* without its prefix, None where the copy engine has no such type.
    ``wgmma_k`` is the K extent of one wgmma, 0 where wgmma does not take the type. ``cvt_packed`` says how many
    values one cvt from f32 makes (PTX cvt.rn.bf16x2.f32), 0 where there is no such cvt.
    """

    name: str
    bits: int
    floating: bool
    tma: str | None = None
    smem_bits: int = 0
    wgmma_k: int = 0
    wgmma_mn_major: bool = False
    cvt_packed: int = 0

    def __post_init__(self) -> None:
        if self.smem_bits == 0:
            object.__setattr__(self, "smem_bits", self.bits)

    @property
    def container_bits(self) -> int:
        """Bits of the register or array element a value travels in (tf32 lives in 32 bits)."""
        return self.bits

    @property
    def packed(self) -> bool:
        """Whether the copy engine treats it as one of the 4- and 6-bit group types."""
        return self.tma is not None and self.tma.startswith("16U")


# The order of CUtensorMapDataType in cuda.h; an enumerator's value is its position.
TMA_ENUMERATORS = (
    "UINT8",
    "UINT16",
    "UINT32",
    "INT32",
    "UINT64",
    "INT64",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "BFLOAT16",
    "FLOAT32_FTZ",
    "TFLOAT32",
    "TFLOAT32_FTZ",
    "16U4_ALIGN8B",
    "16U4_ALIGN16B",
    "16U6_ALIGN16B",
)

# wgmma's K is 32 bytes of either operand (PTX 9.7.15.2); only the 16-bit types may be MN-major (PTX 9.7.15.5.1).
_TYPES = (
    DataType("bf16", 16, True, "BFLOAT16", wgmma_k=16, wgmma_mn_major=True, cvt_packed=2),
    DataType("f16", 16, True, "FLOAT16", wgmma_k=16, wgmma_mn_major=True, cvt_packed=2),
    DataType("f32", 32, True, "FLOAT32"),
    DataType("f32_ftz", 32, True, "FLOAT32_FTZ"),
    DataType("tf32", 32, True, "TFLOAT32", wgmma_k=8, cvt_packed=1),
    DataType("tf32_ftz", 32, True, "TFLOAT32_FTZ", wgmma_k=8),
    DataType("f64", 64, True, "FLOAT64"),
    # The copy engine has no 8-bit float: fp8 travels as UINT8, so it cannot be filled with NaN.
    DataType("e4m3", 8, True, "UINT8", wgmma_k=32, cvt_packed=2),
    DataType("e5m2", 8, True, "UINT8", wgmma_k=32, cvt_packed=2),
    DataType("ue8m0", 8, True, "UINT8", cvt_packed=2),
    DataType("ue4m3", 8, True, "UINT8"),
    DataType("s8", 8, False, "UINT8", wgmma_k=32),
    DataType("u8", 8, False, "UINT8", wgmma_k=32),
    DataType("s16", 16, False, "UINT16"),
    DataType("u16", 16, False, "UINT16"),
    DataType("s32", 32, False, "INT32"),
    DataType("u32", 32, False, "UINT32"),
    DataType("s64", 64, False, "INT64"),
    DataType("u64", 64, False, "UINT64"),
    # kind::mxf4 reads packed nibbles, kind::f8f6f4 reads one value a byte (PTX 9.7.16.3), hence two TMA types.
    DataType("e2m1", 4, True, "16U4_ALIGN8B", cvt_packed=2),
    DataType("e2m1_padded", 4, True, "16U4_ALIGN16B", smem_bits=8),
    DataType("e2m3", 6, True, "16U6_ALIGN16B", smem_bits=8, cvt_packed=2),
    DataType("e3m2", 6, True, "16U6_ALIGN16B", smem_bits=8, cvt_packed=2),
)

_BY_ENUMERATOR = {
    "UINT8": "u8",
    "UINT16": "u16",
    "UINT32": "u32",
    "INT32": "s32",
    "UINT64": "u64",
    "INT64": "s64",
    "FLOAT16": "f16",
    "FLOAT32": "f32",
    "FLOAT64": "f64",
    "BFLOAT16": "bf16",
    "FLOAT32_FTZ": "f32_ftz",
    "TFLOAT32": "tf32",
    "TFLOAT32_FTZ": "tf32_ftz",
    "16U4_ALIGN8B": "e2m1",
    "16U4_ALIGN16B": "e2m1_padded",
    "16U6_ALIGN16B": "e2m3",
}


@cache
def _table() -> dict[str, DataType]:
    table = {t.name: t for t in _TYPES}
    return table | {enumerator: table[name] for enumerator, name in _BY_ENUMERATOR.items()}


def names() -> tuple[str, ...]:
    """All names, in the table's order.

    >>> "bf16" in names()
    True
    """
    return tuple(t.name for t in _TYPES)


def known(name: object) -> bool:
    """Whether ``data_type`` would accept the name.

    >>> known("bf16"), known("BFLOAT16"), known("bf17"), known(255)
    (True, True, False, False)
    """
    return isinstance(name, str) and name in _table()


def data_type(name: str) -> DataType:
    """The format of that name (or of that CUtensorMapDataType enumerator).

    Raises HardwareError naming the nearest name.

    >>> data_type("bf16").bits, data_type("BFLOAT16").name, data_type("tf32").tma
    (16, 'bf16', 'TFLOAT32')
    """
    found = _table().get(name) if isinstance(name, str) else None
    if found is None:
        from .errors import HardwareError, nearest

        raise HardwareError(
            f"dtype {name!r} is not known: one of {', '.join(names())}; nearest {nearest(str(name), names())}"
        )
    return found


def bits(name: str) -> int:
    """Bits of one value.

    >>> bits("bf16"), bits("e2m1"), bits("f64")
    (16, 4, 64)
    """
    return data_type(name).bits


def tma_code(name: str) -> int:
    """The value of the CUtensorMapDataType enumerator a dtype travels as (cuda.h 13.0).

    Raises HardwareError for a dtype the copy engine does not know.

    >>> tma_code("bf16"), tma_code("e4m3")
    (9, 0)
    """
    enumerator = data_type(name).tma
    if enumerator is None:
        from .errors import HardwareError

        raise HardwareError(f"dtype {name!r} has no CUtensorMapDataType")
    return TMA_ENUMERATORS.index(enumerator)
