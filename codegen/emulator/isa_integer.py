"""Integer, logic, comparison and move instructions (PTX ISA 9.7.1, 9.7.2, 9.7.6 to 9.7.9 without memory)."""

from __future__ import annotations

from .emit import FLOATS, SIGNED_TYPES, TABLE, Emit, Emitter, bits_of, instruction
from .ptx import Instruction
from .ptx_operands import Bracket, Call, Operand, Pair, Register, Symbol, Vector

INTEGER_TYPES = ("u16", "s16", "u32", "s32", "u64", "s64", "b16", "b32", "b64")


def _route(name: str, integer: Emit) -> None:
    """An instruction that exists for integers and floats: the type, its last part, decides."""

    def choose(e: Emitter, i: Instruction) -> None:
        if i.parts[-1] in FLOATS:
            TABLE[f"{name} float"](e, i)
        else:
            integer(e, i)

    instruction(name)(choose)


def _two(e: Emitter, i: Instruction, width: int) -> tuple[str, str]:
    return e.use(i.operands[1], width), e.use(i.operands[2], width)


def _add(e: Emitter, i: Instruction) -> None:
    name, kind = i.parts[0], i.parts[-1]
    given = e.allow("sat", "cc", *INTEGER_TYPES)
    width = bits_of(kind)
    a, b = _two(e, i, width)
    if "sat" in given:
        e.put(i.operands[0], f"saturate_signed({a}, {b}, {name == 'sub'})", 32)
    elif "cc" in given:
        other = f"({b} ^ {2**width - 1})" if name == "sub" else b
        result = e.name()
        e.line(f"{result}, carry = add_carry({a}, {other}, {int(name == 'sub')}, {width})")
        e.line("g.carry = carry")
        e.put(i.operands[0], result, width)
    else:
        e.wrap(i.operands[0], f"{a} {'+' if name == 'add' else '-'} {b}", width)


_route("add", _add)
_route("sub", _add)


@instruction("addc", "subc")
def _addc(e: Emitter, i: Instruction) -> None:
    e.allow("cc", *INTEGER_TYPES)
    width = bits_of(i.parts[-1])
    a, b = _two(e, i, width)
    other = f"({b} ^ {2**width - 1})" if i.parts[0] == "subc" else b
    result = e.name()
    e.line(f"{result}, carry = add_carry({a}, {other}, g.carry, {width})")
    if "cc" in i.parts:
        e.line("g.carry = carry")
    e.put(i.operands[0], result, width)


def _product(e: Emitter, a: str, b: str, i: Instruction) -> tuple[str, int]:
    """The product as the modifier asks, and its width. With .lo the caller wraps."""
    given = e.allow("lo", "hi", "wide", "sat", "cc", *INTEGER_TYPES)
    kind = i.parts[-1]
    width, is_signed = bits_of(kind), kind in SIGNED_TYPES
    if "sat" in given:
        e.unsupported(".sat of an integer product")
    if "wide" in given:
        return f"multiply_wide({a}, {b}, {width}, {is_signed})", 2 * width
    if "hi" in given:
        return f"multiply_high({a}, {b}, {width}, {is_signed})", width
    if "lo" not in given:
        e.unsupported("an integer product needs .lo, .hi or .wide")
    # Two ints may exceed the width; what is added to them may be an array, which takes no such int.
    name = e.name()
    e.line(f"{name} = {a} * {b}")
    e.line(f"if {name}.__class__ is int: {name} &= {2**width - 1}")
    return name, width


def _mul(e: Emitter, i: Instruction) -> None:
    a, b = _two(e, i, bits_of(i.parts[-1]))
    text, width = _product(e, a, b, i)
    e.wrap(i.operands[0], text, width)


def _mad(e: Emitter, i: Instruction) -> None:
    a, b = _two(e, i, bits_of(i.parts[-1]))
    text, width = _product(e, a, b, i)
    c = e.use(i.operands[3], width)
    if "cc" in i.parts or i.parts[0] == "madc":
        part, result = e.name(), e.name()
        e.line(f"{part} = wrap_add({text}, 0, {width})")
        e.line(f"{result}, carry = add_carry({part}, {c}, {'g.carry' if i.parts[0] == 'madc' else 0}, {width})")
        if "cc" in i.parts:
            e.line("g.carry = carry")
        e.put(i.operands[0], result, width)
        return
    e.wrap(i.operands[0], f"{text} + {c}", width)


_route("mul", _mul)
_route("mad", _mad)
instruction("madc")(_mad)


@instruction("mul24", "mad24")
def _mul24(e: Emitter, i: Instruction) -> None:
    given = e.allow("lo", "hi", "u32", "s32")
    is_signed = "s32" in given
    a, b = _two(e, i, 32)
    cut = "extend(bit_extract({0}, 0, 24, 32, True), 32, 32)" if is_signed else "({0} & 16777215)"
    product = f"multiply_wide({cut.format(a)}, {cut.format(b)}, 32, {is_signed})"
    text = f"cast(shift_right({product}, {16 if 'hi' in given else 0}, 64, False), 32)"
    e.wrap(i.operands[0], f"{text} + {e.use(i.operands[3], 32)}" if i.parts[0] == "mad24" else text, 32)


def _div(e: Emitter, i: Instruction) -> None:
    kind = i.parts[-1]
    e.allow(*INTEGER_TYPES)
    width = bits_of(kind)
    a, b = _two(e, i, width)
    e.put(i.operands[0], f"divide({a}, {b}, {width}, {kind in SIGNED_TYPES}, {i.parts[0] == 'rem'})", width)


_route("div", _div)
instruction("rem")(_div)


def _extremum(e: Emitter, i: Instruction) -> None:
    kind = i.parts[-1]
    e.allow(*INTEGER_TYPES)
    width = bits_of(kind)
    a, b = _two(e, i, width)
    e.put(i.operands[0], f"extremum({a}, {b}, {width}, {kind in SIGNED_TYPES}, {i.parts[0] == 'max'})", width)


_route("min", _extremum)
_route("max", _extremum)


def _unary(function: str) -> Emit:
    def emit(e: Emitter, i: Instruction) -> None:
        e.allow(*INTEGER_TYPES)
        width = bits_of(i.parts[-1])
        e.put(i.operands[0], f"{function}({e.use(i.operands[1], width)}, {width})", width)

    return emit


_route("abs", _unary("absolute"))
_route("neg", _unary("negate"))
instruction("brev")(_unary("reverse_bits"))


@instruction("popc", "clz")
def _count(e: Emitter, i: Instruction) -> None:
    e.allow("b32", "b64")
    width = bits_of(i.parts[-1])
    function = "bit_count" if i.parts[0] == "popc" else "leading_zeros"
    e.put(i.operands[0], f"{function}({e.use(i.operands[1], width)}, {width})", 32)


@instruction("bfind")
def _bfind(e: Emitter, i: Instruction) -> None:
    given = e.allow("shiftamt", *INTEGER_TYPES)
    kind = i.parts[-1]
    width = bits_of(kind)
    text = f"find_leading({e.use(i.operands[1], width)}, {width}, {kind in SIGNED_TYPES}, {'shiftamt' in given})"
    e.put(i.operands[0], text, 32)


@instruction("bfe")
def _bfe(e: Emitter, i: Instruction) -> None:
    e.allow(*INTEGER_TYPES)
    kind = i.parts[-1]
    width = bits_of(kind)
    a, position, length = (e.use(operand, size) for operand, size in zip(i.operands[1:], (width, 32, 32), strict=True))
    e.put(i.operands[0], f"bit_extract({a}, {position}, {length}, {width}, {kind in SIGNED_TYPES})", width)


@instruction("bfi")
def _bfi(e: Emitter, i: Instruction) -> None:
    e.allow("b32", "b64")
    width = bits_of(i.parts[-1])
    a, b, position, length = (e.use(o, size) for o, size in zip(i.operands[1:], (width, width, 32, 32), strict=True))
    e.put(i.operands[0], f"bit_insert({a}, {b}, {position}, {length}, {width})", width)


@instruction("bmsk")
def _bmsk(e: Emitter, i: Instruction) -> None:
    e.allow("clamp", "b32")
    if "clamp" not in i.parts:
        e.unsupported("only .clamp")
    a, b = _two(e, i, 32)
    e.put(
        i.operands[0],
        f"bit_insert(4294967295, 0, extremum({a}, 255, 32, False, False), extremum({b}, 255, 32, False, False), 32)",
        32,
    )


@instruction("and", "or", "xor")
def _logic(e: Emitter, i: Instruction) -> None:
    e.allow("pred", "b16", "b32", "b64")
    width = bits_of(i.parts[-1])
    a, b = _two(e, i, width)
    sign = {"and": "&", "or": "|", "xor": "^"}[i.parts[0]]
    text = f"{a} {sign} {b}"
    if i.parts[0] == "and" and not isinstance(i.operands[2], Register):
        text = f"collapse({text})"
    e.put(i.operands[0], text, width)


@instruction("not")
def _not(e: Emitter, i: Instruction) -> None:
    e.allow("pred", "b16", "b32", "b64")
    width = bits_of(i.parts[-1])
    a = e.use(i.operands[1], width)
    e.put(i.operands[0], f"negate_predicate({a})" if width == 1 else f"{a} ^ {2**width - 1}", width)


@instruction("cnot")
def _cnot(e: Emitter, i: Instruction) -> None:
    e.allow("b16", "b32", "b64")
    width = bits_of(i.parts[-1])
    e.put(i.operands[0], f"select({e.use(i.operands[1], width)} == 0, 1, 0, {width})", width)


@instruction("lop3")
def _lop3(e: Emitter, i: Instruction) -> None:
    given = e.allow("b32", "or", "and")
    if "or" in given or "and" in given:
        e.unsupported("a predicate result")
    a, b, c = (e.use(operand, 32) for operand in i.operands[1:4])
    table = int(e.use(i.operands[4], 32))
    e.put(i.operands[0], f"logic3({a}, {b}, {c}, {table})", 32)


@instruction("shl", "shr")
def _shift(e: Emitter, i: Instruction) -> None:
    e.allow(*INTEGER_TYPES)
    kind = i.parts[-1]
    width = bits_of(kind)
    a, b = e.use(i.operands[1], width), e.use(i.operands[2], 32)
    if i.parts[0] == "shl":
        e.put(i.operands[0], f"shift_left({a}, {b}, {width})", width)
    else:
        e.put(i.operands[0], f"shift_right({a}, {b}, {width}, {kind in SIGNED_TYPES})", width)


@instruction("shf")
def _shf(e: Emitter, i: Instruction) -> None:
    given = e.allow("l", "r", "clamp", "wrap", "b32")
    a, b, c = (e.use(operand, 32) for operand in i.operands[1:4])
    e.put(i.operands[0], f"funnel_shift({a}, {b}, {c}, {'l' in given}, {'wrap' in given})", 32)


@instruction("prmt")
def _prmt(e: Emitter, i: Instruction) -> None:
    given = e.allow("b32", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16") - {"b32"}
    a, b, c = (e.use(operand, 32) for operand in i.operands[1:4])
    text = f"permute_mode({a}, {b}, {c}, {next(iter(given))!r})" if given else f"permute({a}, {b}, {c})"
    e.put(i.operands[0], text, 32)


@instruction("sad")
def _sad(e: Emitter, i: Instruction) -> None:
    e.allow(*INTEGER_TYPES)
    kind = i.parts[-1]
    width = bits_of(kind)
    a, b, c = (e.use(operand, width) for operand in i.operands[1:4])
    e.put(i.operands[0], f"sad({a}, {b}, {c}, {width}, {kind in SIGNED_TYPES})", width)


@instruction("dp4a")
def _dp4a(e: Emitter, i: Instruction) -> None:
    e.allow("u32", "s32")
    a, b, c = (e.use(operand, 32) for operand in i.operands[1:4])
    e.put(i.operands[0], f"dot_product({a}, {b}, {c}, {i.parts[1] == 's32'}, {i.parts[2] == 's32'})", 32)


COMPARISONS = frozenset(
    "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan".split()  # noqa: SIM905
)


def comparison(e: Emitter, i: Instruction, kind: str, a: str, b: str) -> str:
    """The text of `a NAME b` as setp, set and slct need it."""
    name = i.parts[1]
    if name not in COMPARISONS:
        e.unsupported(f"comparison .{name}")
    width = bits_of(kind)
    if kind in ("bf16",):
        return f"float_compare(bf16_to_f32({a}), bf16_to_f32({b}), 32, {name!r})"
    if kind in FLOATS:
        return f"float_compare({a}, {b}, {width}, {name!r})"
    if kind in SIGNED_TYPES and name not in ("eq", "ne"):
        return f"compare({a}, {b}, {width}, True, {name!r})"
    sign = {
        "lt": "<",
        "lo": "<",
        "le": "<=",
        "ls": "<=",
        "gt": ">",
        "hi": ">",
        "ge": ">=",
        "hs": ">=",
        "eq": "==",
        "ne": "!=",
    }
    if name not in sign:
        e.unsupported(f"comparison .{name} of integers")
    return f"{a} {sign[name]} {b}"


@instruction("setp")
def _setp(e: Emitter, i: Instruction) -> None:
    e.allow("and", "or", "xor", "ftz", "f16", "bf16", "f32", "f64", *COMPARISONS, *INTEGER_TYPES)
    kind = i.parts[-1]
    width = bits_of(kind)
    a, b = e.use(i.operands[1], width, kind), e.use(i.operands[2], width, kind)
    if "ftz" in i.parts:
        a, b = f"flush({a}, {width})", f"flush({b}, {width})"
    result = e.name()
    e.line(f"{result} = {comparison(e, i, kind, a, b)}")
    other = f"negate_predicate({result})"
    if i.parts[2] in ("and", "or", "xor"):
        sign = {"and": "&", "or": "|", "xor": "^"}[i.parts[2]]
        c = e.use(i.operands[3], 1)
        other = f"{other} {sign} {c}"
        e.line(f"{result}_c = {result} {sign} {c}")
        main = f"{result}_c"
    else:
        main = result
    destination = i.operands[0]
    if isinstance(destination, Pair):
        e.put(destination.first, main, 1)
        e.put(destination.second, other, 1)
    else:
        e.put(destination, main, 1)


@instruction("set")
def _set(e: Emitter, i: Instruction) -> None:
    e.allow("ftz", "f32", *COMPARISONS, *INTEGER_TYPES)
    kind = i.parts[-1]
    width = bits_of(kind)
    a, b = e.use(i.operands[1], width, kind), e.use(i.operands[2], width, kind)
    ones = 0x3F800000 if i.parts[-2] == "f32" else 0xFFFFFFFF
    e.put(i.operands[0], f"select({comparison(e, i, kind, a, b)}, {ones}, 0, 32)", 32)


@instruction("selp")
def _selp(e: Emitter, i: Instruction) -> None:
    kind = i.parts[-1]
    width = bits_of(kind)
    a, b = e.use(i.operands[1], width, kind), e.use(i.operands[2], width, kind)
    p = e.use(i.operands[3], 1)
    e.put(i.operands[0], f"({a} if {p} else {b}) if {p}.__class__ is bool else select({p}, {a}, {b}, {width})", width)


@instruction("slct")
def _slct(e: Emitter, i: Instruction) -> None:
    e.allow("ftz", "f32", "f64", *INTEGER_TYPES)
    kind, control = i.parts[-2], i.parts[-1]
    width = bits_of(kind)
    a, b, c = e.use(i.operands[1], width, kind), e.use(i.operands[2], width, kind), e.use(i.operands[3], 32)
    test = f"float_compare({c}, 0, 32, 'ge')" if control == "f32" else f"compare({c}, 0, 32, True, 'ge')"
    e.put(i.operands[0], f"select({test}, {a}, {b}, {width})", width)


@instruction("mov")
def _mov(e: Emitter, i: Instruction) -> None:
    kind = i.parts[-1]
    width = bits_of(kind)
    target, source = i.operands
    if width == 128:
        _mov_pair(e, target, source)
        return
    if isinstance(target, Vector):
        names = [e.name() for _ in target.items]
        e.line(f"{', '.join(names)} = unpack({e.use(source, width)}, {width}, {len(names)})")
        for item, name in zip(target.items, names, strict=True):
            e.put(item, name, width // len(names))
        return
    if isinstance(source, Vector):
        step = width // len(source.items)
        parts = ", ".join(e.use(item, step) for item in source.items)
        e.put(target, f"pack(({parts},), {width})", width)
        return
    if isinstance(target, Register) and isinstance(source, Register) and not e.guarded and source.slot in e.fragments:
        # An accumulator's register is copied as it is, without reading it.
        e.touch((source.slot,))
        e.writes.add(target.slot)
        e.assigned.add(target.slot)
        e.line(f"R[{target.slot}] = share(R[{source.slot}])")
        return
    e.put(target, e.use(source, width, kind), width)


def _mov_pair(e: Emitter, target: Operand, source: Operand) -> None:
    """mov.b128: such a register holds two 64-bit values."""
    if e.guarded:
        e.unsupported("a guarded move of 128 bits")
    if isinstance(target, Vector):
        name = e.name()
        e.line(f"{name} = {e.use(source, 128)}")
        if len(target.items) != 2:
            e.unsupported(f"{len(target.items)} parts of 128 bits")
        for number, item in enumerate(target.items):
            e.put(item, f"{name}[{number}]", 64)
    elif isinstance(source, Vector) and len(source.items) == 2:
        e.put(target, f"({', '.join(e.use(item, 64) for item in source.items)})", 128)
    else:
        e.put(target, e.use(source, 128), 128)


def parameter_slot(e: Emitter, operand: Bracket) -> str:
    """The local name that stands for one piece of a call's .param variable."""
    base = operand.base
    assert isinstance(base, Call)
    return f"g.parameters[{base.name!r}, {int(operand.amount)}]"


@instruction("pmevent")
def _refused(e: Emitter, i: Instruction) -> None:
    e.unsupported()


@instruction("trap", "brkpt")
def _trap(e: Emitter, i: Instruction) -> None:
    e.at()
    e.line(f"trap(g, {e.mask})")


@instruction("call")
def _call(e: Emitter, i: Instruction) -> None:
    e.unsupported(i.parts[-1].strip("()"))


@instruction("discard", "applypriority")
def _hint(e: Emitter, i: Instruction) -> None:
    """Cache hints change no value."""


def is_sink(operand: object) -> bool:
    """Whether a destination is `_`."""
    return isinstance(operand, Symbol) and operand.name == "_"
