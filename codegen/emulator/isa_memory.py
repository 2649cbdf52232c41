"""Loads, stores, address conversions (PTX ISA 9.7.9.8 to 9.7.9.22). Those with an order, atomics and fences: isa_order.py."""

from __future__ import annotations

from .emit import SIGNED_TYPES, Emitter, bits_of, instruction
from .isa_integer import is_sink, parameter_slot
from .ordering import SCOPES
from .ptx import TYPE_BYTES, Instruction
from .ptx_operands import Bracket, Call, Immediate, Operand, Register, Symbol

SPACES = {
    "global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster", "local": "local", "const": "const",
    "param": "param", "param::entry": "param", "param::func": "param",
}  # fmt: skip
ORDERS = frozenset(
    {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys"}
)
_STRONG = frozenset({"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"})
_HINTS = ("L1::", "L2::", "level::")
_CACHE = frozenset({"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"})


def split_access(e: Emitter, i: Instruction) -> tuple[str, frozenset[str], int, str]:
    """(space, ordering words, elements, type) of ld, st, atom or red; unknown modifiers are refused."""
    space, count, order, kind = "generic", 1, set(), i.parts[-1]
    if kind not in TYPE_BYTES:
        e.unsupported(f"type .{kind}")
    for part in i.parts[1:-1]:
        if part in SPACES:
            space = SPACES[part]
        elif part in ORDERS:
            order.add(part)
        elif part in ("v2", "v4", "v8"):
            count = int(part[1])
        elif part not in _CACHE and not part.startswith(_HINTS) and part not in _OPERATIONS:
            e.unsupported(f"modifier .{part}")
    return space, frozenset(order), count, kind


_STORED_ASYNC = frozenset({"b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"})
_OPERATIONS = frozenset({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas", "noftz"})


def address_of(e: Emitter, operand: Operand, space: str) -> str:
    if isinstance(operand, Bracket) and space in ("shared", "cluster"):
        base = operand.base
        if isinstance(base, Register) and bits_of(base.type) == 64:
            return f"cast({e.address(operand)}, 32)"
        return e.address(operand, 32)
    return e.address(operand)


def is_strong(order: frozenset[str]) -> bool:
    """Whether these ordering words make an access strong."""
    return bool(order & _STRONG)


def scope_of(order: frozenset[str], default: str) -> int:
    """The number of the scope among ordering words; volatile and mmio are of the whole system (PTX ISA, "Operation types")."""
    if order & {"volatile", "mmio"}:
        return SCOPES["sys"]
    return next((SCOPES[word] for word in order if word in SCOPES), SCOPES[default])


@instruction("ld", "ldu")
def _ld(e: Emitter, i: Instruction) -> None:
    space, _, count, kind = split_access(e, i)
    source = i.operands[1]
    items = e.items(i.operands[0])
    if len(items) != count:
        e.unsupported(f"{len(items)} destinations")
    if kind == "b128":
        _ld_pair(e, i, space)
        return
    width = TYPE_BYTES[kind]
    if space == "param" and isinstance(source, Bracket):
        _ld_param(e, i, source, items, kind)
        return
    e.at()
    address = address_of(e, source, space)
    name = e.name()
    e.line(f"{name} = load_{space}(g, {e.mask}, {address}, {width}, {count})")
    for number, item in enumerate(items):
        widen(e, item, name if count == 1 else f"{name}[{number}]", kind)


def _ld_pair(e: Emitter, i: Instruction, space: str) -> None:
    """ld.b128: a register of 128 bits holds two 64-bit values."""
    if e.guarded or space == "param" or len(e.items(i.operands[0])) > 1:
        e.unsupported("this load of 128 bits")
    e.at()
    address, name = address_of(e, i.operands[1], space), e.name()
    e.line(f"{name} = load_{space}(g, {e.mask}, {address}, 8, 2)")
    e.put(i.operands[0], f"({name}[0], {name}[1])", 128)


def widen(e: Emitter, item: Operand, text: str, kind: str) -> None:
    if is_sink(item):
        return
    own = bits_of(getattr(item, "type", kind))
    if kind in SIGNED_TYPES and own > bits_of(kind):
        e.put(item, f"extend({text}, {bits_of(kind)}, {own})", own)
    else:
        e.put(item, text, bits_of(kind))


def _ld_param(e: Emitter, i: Instruction, source: Bracket, items: tuple[Operand, ...], kind: str) -> None:
    width = TYPE_BYTES[kind]
    for number, item in enumerate(items):
        piece = Bracket(source.base, int(source.amount) + number * width, ())
        if isinstance(source.base, Call):
            widen(e, item, parameter_slot(e, piece), kind)
        elif isinstance(source.base, Symbol) and source.base.name in e.parameters:
            offset = e.parameters[source.base.name] + int(piece.amount)
            widen(e, item, f"g.cta.launch.parameter({offset}, {width})", kind)
        else:
            e.at()
            name = e.name()
            e.line(f"{name} = load_generic(g, {e.mask}, {e.address(piece)}, {width}, 1)")
            widen(e, item, name, kind)


@instruction("st")
def _st(e: Emitter, i: Instruction) -> None:
    if i.parts[1] == "async":
        _st_async(e, i)
        return
    space, order, count, kind = split_access(e, i)
    items = e.items(i.operands[1])
    width = TYPE_BYTES[kind]
    if len(items) != count:
        e.unsupported(f"{len(items)} sources")
    values = [e.use(item, 8 * width, kind) for item in items]
    target = i.operands[0]
    if space == "param":
        if not (isinstance(target, Bracket) and isinstance(target.base, Call)) or e.guarded:
            e.unsupported("a store to a kernel's parameters")
        for number, value in enumerate(values):
            e.line(f"{parameter_slot(e, Bracket(target.base, int(target.amount) + number * width, ()))} = {value}")
        return
    e.at()
    address = address_of(e, target, space)
    packed = values[0] if count == 1 else f"({', '.join(values)},)"
    if is_strong(order):
        releases, scope = "release" in order, scope_of(order, "sys")
        e.line(f"strong_store(g, {e.mask}, {space!r}, {address}, {packed}, {width}, {count}, {releases}, {scope})")
    else:
        e.line(f"store_{space}(g, {e.mask}, {address}, {packed}, {width}, {count})")


def _st_async(e: Emitter, i: Instruction) -> None:
    """PTX ISA 9.7.9.12, the form with an mbarrier; vectors fill at most 16 bytes."""
    kind = i.parts[-1]
    e.allow("async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes", "v2", "v4", *_STORED_ASYNC)
    items = e.items(i.operands[1])
    if kind not in _STORED_ASYNC or "mbarrier::complete_tx::bytes" not in i.parts or len(i.operands) != 3:
        e.unsupported("this form")
    width = TYPE_BYTES[kind]
    count = next((int(part[1]) for part in i.parts if part in ("v2", "v4")), 1)
    if len(items) != count or width * count > 16:
        e.unsupported(f"{len(items)} sources of {width} bytes")
    values = "".join(f"{e.use(item, 8 * width, kind)}, " for item in items)
    if "shared::cluster" in i.parts:
        target, barrier = (address_of(e, i.operands[n], "cluster") for n in (0, 2))
    else:
        target, barrier = (f"shared_of_generic(g, {e.address(i.operands[n], 64)})" for n in (0, 2))
    e.at()
    e.line(f"store_async(g, {e.mask}, {target}, {barrier}, ({values}), {width})")


@instruction("cvta")
def _cvta(e: Emitter, i: Instruction) -> None:
    to = i.parts[1] == "to"
    space = SPACES.get(i.parts[2] if to else i.parts[1])
    width = bits_of(i.parts[-1])
    if space is None or width != 64:
        e.unsupported()
    source = i.operands[1]
    value = e.use(source, 64)
    if isinstance(source, Symbol) and space == "shared":
        value = f"({value})"
    e.put(i.operands[0], f"{'from' if to else 'to'}_generic({value}, {space!r})", 64)


@instruction("isspacep")
def _isspacep(e: Emitter, i: Instruction) -> None:
    space = SPACES.get(i.parts[1])
    if space is None:
        e.unsupported()
    e.put(i.operands[0], f"is_space(g, {e.use(i.operands[1], 64)}, {space!r})", 1)


@instruction("mapa", "getctarank")
def _mapa(e: Emitter, i: Instruction) -> None:
    given = e.allow("shared::cluster", "u32", "u64")
    generic = "shared::cluster" not in given
    width = bits_of(i.parts[-1])
    source = i.operands[1]
    value = e.use(source, width)
    e.at()
    if i.parts[0] == "mapa":
        rank = e.use(i.operands[2], 32)
        e.put(i.operands[0], f"map_address(g, {e.mask}, {value}, {rank}, {width}, {generic})", width)
    else:
        e.put(i.operands[0], f"address_rank(g, {value}, {width}, {generic})", 32)


@instruction("prefetch", "prefetchu")
def _prefetch(e: Emitter, i: Instruction) -> None:
    if "tensormap" in i.parts:
        e.at()
        e.line(f"prefetch_tensormap(g, {e.mask}, {e.address(i.operands[0])})")
    elif not any(part in ("L1", "L2") or part.startswith("L2::") for part in i.parts):
        e.unsupported()


@instruction("createpolicy")
def _createpolicy(e: Emitter, i: Instruction) -> None:
    """A cache policy changes no value: any number stands for it."""
    e.put(i.operands[0], "0", 64)


def immediate_int(e: Emitter, operand: Operand) -> int:
    """An operand that must be a constant."""
    if not isinstance(operand, Immediate):
        e.unsupported(f"{operand} where a constant is needed")
    return int(operand.value)
