"""tensormap.replace and tensormap.cp_fenceproxy (PTX ISA 9.7.9.28, 9.7.13.16)."""

from __future__ import annotations

from stridewright.layout.hardware.tensor_map_replace import FIELDS, ORDINALS

from .emit import Emitter, instruction
from .isa_memory import immediate_int
from .ptx import Instruction
from .ptx_operands import Bracket, Register


@instruction("tensormap")
def _tensormap(e: Emitter, i: Instruction) -> None:
    e.at()
    if i.parts[1] == "replace":
        _replace(e, i)
    elif i.parts[1] == "cp_fenceproxy":
        _copy(e, i)
    else:
        e.unsupported()


def _replace(e: Emitter, i: Instruction) -> None:
    field = i.parts[3]
    if i.parts[2] != "tile" or field not in FIELDS or "b1024" not in i.parts:
        e.unsupported()
    wide = field in ("global_address", "global_stride")
    e.allow("replace", "tile", field, "shared::cta", "global", "b1024", "b64" if wide else "b32")
    shared = "shared::cta" in i.parts
    if not shared and "global" not in i.parts:
        e.unsupported("a generic address")
    operands = list(i.operands)
    ordinal = immediate_int(e, operands.pop(1)) if field in ORDINALS else 0
    address = _address(e, operands[0], shared)
    value = e.use(operands[1], 64 if wide else 32)
    e.line(f"tensor_map_replace(g, {e.mask}, {shared}, {address}, {field!r}, {ordinal}, {value})")


def _copy(e: Emitter, i: Instruction) -> None:
    e.allow(
        "cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "cta", "cluster", "gpu", "sys", "sync", "aligned"
    )  # fmt: skip
    if immediate_int(e, i.operands[2]) != 128:
        e.unsupported("a size other than 128")
    target, source = _address(e, i.operands[0], False), _address(e, i.operands[1], True)
    e.line(f"tensor_map_copy(g, {e.mask}, {target}, {source})")


def _address(e: Emitter, operand: object, shared: bool) -> str:
    """A shared address may come in a register of 64 bits."""
    assert isinstance(operand, Bracket)
    if not shared:
        return e.address(operand, 64)
    wide = isinstance(operand.base, Register) and operand.base.type.endswith("64")
    return f"cast({e.address(operand)}, 32)" if wide else e.address(operand, 32)
