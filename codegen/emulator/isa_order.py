"""Loads and stores with an order, atomics, fences of threads (PTX ISA 9.7.9.8, 9.7.9.11, 9.7.13.5 to 9.7.13.8, and 8., "Memory Consistency Model").

Loads and atomics on global memory may be polls: each is a block of its own, after which its gang may be parked.
"""

from __future__ import annotations

from .emit import Emitter, bits_of, instruction
from .isa_integer import is_sink
from .isa_memory import address_of, immediate_int, scope_of, split_access, widen
from .isa_warp import blocking, enter_blocking
from .ordering import SCOPES
from .ptx import TYPE_BYTES, Instruction
from .ptx_operands import Symbol

_FLOAT_VECTORS = {"f32": (2, 4), "f16": (2, 4, 8), "bf16": (2, 4, 8), "f16x2": (2, 4), "bf16x2": (2, 4)}
"""Elements of a vector atomic (PTX ISA, atom: .vec_32_bit with .f32, .vec_16_bit and .vec_32_bit with half types)."""
_KINDS: dict[str, frozenset[str]] = {
    "add": frozenset({"u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}),
    "min": frozenset({"u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2"}),
    "max": frozenset({"u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2"}),
    "inc": frozenset({"u32"}),
    "dec": frozenset({"u32"}),
    "and": frozenset({"b32", "b64"}),
    "or": frozenset({"b32", "b64"}),
    "xor": frozenset({"b32", "b64"}),
    "exch": frozenset({"b32", "b64"}),
    "cas": frozenset({"b16", "b32", "b64"}),
}
"""Types of each operation, as ptxas 13.0 takes them (.b128 is not modelled)."""


@blocking("ld.relaxed", "ld.acquire", "ld.volatile", "ld.mmio")
def _strong_ld(e: Emitter, i: Instruction, block: int, following: int) -> None:
    enter_blocking(e, i, block, following)
    space, order, count, kind = split_access(e, i)
    items = e.items(i.operands[0])
    if len(items) != count or len(i.operands) > 3 or (len(i.operands) == 3 and "L2::cache_hint" not in i.parts):
        e.unsupported(f"{len(items)} destinations and {len(i.operands)} operands")
    width = TYPE_BYTES[kind]
    address, name = e.name(), e.name()
    e.line(f"{address} = {address_of(e, i.operands[1], space)}")
    acquires, scope = "acquire" in order, scope_of(order, "sys")
    e.line(f"{name} = strong_load(g, g.mask, {space!r}, {address}, {width}, {count}, {acquires}, {scope})")
    for number, item in enumerate(items):
        widen(e, item, name if count == 1 else f"{name}[{number}]", kind)
    _end_poll(e, address, width, count, name, following)


def _end_poll(e: Emitter, address: str, width: int, count: int, name: str, following: int) -> None:
    e.flush()
    e.line(f"if polls(g, {address}, {width}, {count}, {name}):")
    e.line(f" g.pc = {following}")
    e.line(" return PARK")
    e.line(f"return {following}")


@blocking("atom")
def _polling_atom(e: Emitter, i: Instruction, block: int, following: int) -> None:
    enter_blocking(e, i, block, following)
    address, width, names = _atomic(e, i)
    if len(names) == 1:
        _end_poll(e, address, width, 1, names[0], following)
        return
    e.flush()
    e.line(f"return {following}")


@instruction("atom", "red")
def _atom(e: Emitter, i: Instruction) -> None:
    _atomic(e, i)


def _atomic(e: Emitter, i: Instruction) -> tuple[str, int, list[str]]:
    """Writes an atomic; returns the names of its address, its bytes, and the old value of each element."""
    space, order, count, kind = split_access(e, i)
    operation = next((part for part in i.parts if part in _KINDS), "")
    if i.parts[1] == "async" or not operation or kind not in _KINDS[operation]:
        e.unsupported("this form")
    returns = i.parts[0] == "atom"
    operands = list(i.operands if returns else (Symbol("_"), *i.operands))
    if "L2::cache_hint" in i.parts:
        e.use(operands.pop(), 64)
    if len(operands) != (4 if operation == "cas" else 3):
        e.unsupported(f"{len(operands)} operands")
    vector = count > 1
    if vector and (
        operation not in ("add", "min", "max")
        or count not in _FLOAT_VECTORS.get(kind, ())
        or (kind == "f32" and operation != "add")
        or space not in ("global", "generic")
    ):
        e.unsupported("this vector")
    width = bits_of(kind)
    sources = [e.items(operand) for operand in operands[2:]]
    results = (Symbol("_"),) * count if is_sink(operands[0]) else e.items(operands[0])
    if any(len(source) != count for source in sources) or len(results) != count:
        e.unsupported(f"vectors of other than {count} elements")
    acquires, releases = bool(order & {"acquire", "acq_rel"}), bool(order & {"release", "acq_rel"})
    e.at()
    address = e.name()
    e.line(f"{address} = {address_of(e, operands[1], space)}")
    names: list[str] = []
    for number in range(count):
        values = "".join(f"{e.use(source[number], width, kind)}, " for source in sources)
        at = f"wrap_add({address}, {number * width // 8}, 64)" if number else address
        names.append(e.name())
        e.line(
            f"{names[-1]} = atomic(g, {e.mask}, {space!r}, {operation!r}, {kind!r}, {at}, ({values}), {width // 8}, "
            f"{acquires}, {releases}, {scope_of(order, 'gpu')}, {returns}, {0 if number else count})"
        )
    for name, result in zip(names, results, strict=True):
        if not is_sink(result):
            e.put(result, name, width)
    return address, width // 8, names


@instruction("fence")
def _fence(e: Emitter, i: Instruction) -> None:
    parts = i.parts[1:]
    e.at()
    if parts[:2] == ("proxy", "async") or (parts[0] == "proxy" and parts[1].startswith("async")):
        space = parts[2] if len(parts) > 2 else "all"
        if space not in ("all", "global", "shared::cta", "shared::cluster"):
            e.unsupported()
        e.line(f"fence_proxy_async(g, {e.mask}, {space!r})")
    elif parts[0] == "proxy" and parts[1] == "tensormap::generic":
        if "acquire" in parts:
            if immediate_int(e, i.operands[1]) != 128:
                e.unsupported("a size other than 128")
            e.line(f"tensor_map_acquire(g, {e.mask}, {e.address(i.operands[0], 64)})")
        if parts[2] not in ("acquire", "release") or parts[3] not in SCOPES:
            e.unsupported()
        acquires, releases = parts[2] == "acquire", parts[2] == "release"
        e.line(f"fence_thread(g, {e.mask}, {SCOPES[parts[3]]}, {acquires}, {releases})")
    elif parts[0] == "proxy" and parts[1] == "alias":
        pass
    elif parts[0] == "mbarrier_init":
        e.line(f"fence_mbarrier_init(g, {e.mask})")
    else:
        _fence_thread(e, parts)


@instruction("membar")
def _membar(e: Emitter, i: Instruction) -> None:
    """The old name of fence.sc (PTX ISA, "membar"); membar.proxy is fence.proxy."""
    scope = i.parts[1]
    if len(i.parts) != 2 or scope not in ("cta", "gl", "sys"):
        e.unsupported()
    e.at()
    e.line(f"fence_thread(g, {e.mask}, {SCOPES[scope]}, True, True)")


def _fence_thread(e: Emitter, parts: tuple[str, ...]) -> None:
    """fence.{sc, acq_rel, acquire, release}.scope, and fence.scope, which is acq_rel."""
    words = frozenset(part for part in parts if not part.startswith("sync_restrict::"))
    meaning, scopes = words & {"sc", "acq_rel", "acquire", "release"}, words & frozenset(SCOPES)
    if len(meaning) > 1 or len(scopes) != 1 or words - meaning - scopes:
        e.unsupported()
    both = not meaning or bool(meaning & {"sc", "acq_rel"})
    scope = SCOPES[next(iter(scopes))]
    e.line(f"fence_thread(g, {e.mask}, {scope}, {both or 'acquire' in meaning}, {both or 'release' in meaning})")
