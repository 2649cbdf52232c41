"""Loads, stores, atomics, address conversions, fences (PTX ISA 9.7.9.8 to 9.7.9.22, 9.7.13.4 to 9.7.13.8)."""

from __future__ import annotations

from .emit import SIGNED_TYPES, Emitter, bits_of, instruction
from .isa_integer import is_sink, parameter_slot
from .ptx import TYPE_BYTES, Instruction
from .ptx_operands import Bracket, Call, Immediate, Operand, Register, Symbol

SPACES = {
    "global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster", "local": "local", "const": "const",
    "param": "param", "param::entry": "param", "param::func": "param",
}  # fmt: skip
ORDERS = frozenset(
    {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys"}
)
_HINTS = ("L1::", "L2::", "level::")
_CACHE = frozenset({"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"})


def _split(e: Emitter, i: Instruction) -> tuple[str, frozenset[str], int, str]:
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


def _address(e: Emitter, operand: Operand, space: str) -> str:
    if isinstance(operand, Bracket) and space in ("shared", "cluster"):
        base = operand.base
        if isinstance(base, Register) and bits_of(base.type) == 64:
            return f"cast({e.address(operand)}, 32)"
        return e.address(operand, 32)
    return e.address(operand)


@instruction("ld", "ldu")
def _ld(e: Emitter, i: Instruction) -> None:
    space, order, count, kind = _split(e, i)
    source = i.operands[1]
    items = e.items(i.operands[0])
    if len(items) != count:
        e.unsupported(f"{len(items)} destinations")
    width = TYPE_BYTES[kind]
    if space == "param" and isinstance(source, Bracket):
        _ld_param(e, i, source, items, kind)
        return
    e.at()
    address = _address(e, source, space)
    name = e.name()
    ordering = f", {sorted(order)!r}" if order - {"weak", "volatile"} else ""
    e.line(f"{name} = load_{space}(g, {e.mask}, {address}, {width}, {count}{ordering})")
    for number, item in enumerate(items):
        _widen(e, item, name if count == 1 else f"{name}[{number}]", kind)


def _widen(e: Emitter, item: Operand, text: str, kind: str) -> None:
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
            _widen(e, item, parameter_slot(e, piece), kind)
        elif isinstance(source.base, Symbol) and source.base.name in e.parameters:
            offset = e.parameters[source.base.name] + int(piece.amount)
            _widen(e, item, f"g.cta.launch.parameter({offset}, {width})", kind)
        else:
            e.at()
            name = e.name()
            e.line(f"{name} = load_generic(g, {e.mask}, {e.address(piece)}, {width}, 1)")
            _widen(e, item, name, kind)


@instruction("st")
def _st(e: Emitter, i: Instruction) -> None:
    if i.parts[1] == "async":
        _st_async(e, i)
        return
    space, order, count, kind = _split(e, i)
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
    address = _address(e, target, space)
    ordering = f", {sorted(order)!r}" if order - {"weak", "volatile"} else ""
    packed = values[0] if count == 1 else f"({', '.join(values)},)"
    e.line(f"store_{space}(g, {e.mask}, {address}, {packed}, {width}, {count}{ordering})")


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
        target, barrier = (_address(e, i.operands[n], "cluster") for n in (0, 2))
    else:
        target, barrier = (f"shared_of_generic(g, {e.address(i.operands[n], 64)})" for n in (0, 2))
    e.at()
    e.line(f"store_async(g, {e.mask}, {target}, {barrier}, ({values}), {width})")


@instruction("atom", "red")
def _atom(e: Emitter, i: Instruction) -> None:
    space, order, count, kind = _split(e, i)
    operation = next((part for part in i.parts if part in _OPERATIONS - {"noftz"}), "")
    if i.parts[1] == "async" or not operation:
        e.unsupported("this form")
    width = bits_of(kind)
    operands = i.operands if i.parts[0] == "atom" else (Symbol("_"), *i.operands)
    address = _address(e, operands[1], space)
    if count > 1:
        _atom_vector(e, space, order, count, kind, operation, operands, address)
        return
    values = [e.use(operand, width, kind) for operand in operands[2:4]]
    if len(operands) > (4 if operation == "cas" else 3):
        e.unsupported("a cache policy operand")
    e.at()
    name = e.name()
    e.line(
        f"{name} = atomic(g, {e.mask}, {space!r}, {operation!r}, {kind!r}, {address}, ({', '.join(values)},), {sorted(order)!r})"
    )
    e.put(operands[0], name, width)


def _atom_vector(
    e: Emitter,
    space: str,
    order: frozenset[str],
    count: int,
    kind: str,
    operation: str,
    operands: tuple[Operand, ...],
    address: str,
) -> None:
    """atom and red of a vector: an atomic on each element by itself (PTX ISA, .vec_16_bit, .vec_32_bit)."""
    width = bits_of(kind)
    if operation not in ("add", "min", "max") or space not in ("global", "generic") or len(operands) > 3:
        e.unsupported("this form")
    values = [e.use(item, width, kind) for item in e.items(operands[2])]
    results = e.items(operands[0]) if not is_sink(operands[0]) else (Symbol("_"),) * count
    if len(values) != count or len(results) != count:
        e.unsupported(f"{len(values)} elements")
    e.at()
    for number, (value, result) in enumerate(zip(values, results, strict=True)):
        name = e.name()
        at = f"wrap_add({address}, {number * width // 8}, 64)"
        e.line(f"{name} = atomic(g, {e.mask}, {space!r}, {operation!r}, {kind!r}, {at}, ({value},), {sorted(order)!r})")
        e.put(result, name, width)


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


@instruction("fence", "membar")
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
        e.line(f"fence_thread(g, {e.mask}, {parts[-1]!r})")
    elif parts[0] == "proxy" and parts[1] == "alias":
        pass
    elif parts[0] == "mbarrier_init":
        e.line(f"fence_mbarrier_init(g, {e.mask})")
    elif set(parts) <= {
        "sc",
        "acq_rel",
        "acquire",
        "release",
        "cta",
        "cluster",
        "gpu",
        "gl",
        "sys",
        "sync_restrict::shared::cta",
        "sync_restrict::shared::cluster",
    }:
        e.line(f"fence_thread(g, {e.mask}, {parts[-1]!r})")
    else:
        e.unsupported()


def immediate_int(e: Emitter, operand: Operand) -> int:
    """An operand that must be a constant."""
    if not isinstance(operand, Immediate):
        e.unsupported(f"{operand} where a constant is needed")
    return int(operand.value)
