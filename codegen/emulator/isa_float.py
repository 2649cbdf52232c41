"""Floating-point arithmetic and conversions (PTX ISA 9.7.3 to 9.7.5, cvt of 9.7.9)."""

from __future__ import annotations

from .emit import FLOATS, SIGNED_TYPES, TABLE, Emit, Emitter, bits_of, instruction
from .ptx import TYPE_BYTES, Instruction

ROUNDINGS = ("rn", "rz", "rm", "rp")


def _rounding(i: Instruction) -> str:
    return next((part for part in i.parts if part in ROUNDINGS), "rn")


def _float(name: str) -> None:
    """Enters the float form of a name that isa_integer routes by type."""
    TABLE[f"{name} float"] = _arithmetic


def _flushed(text: str, given: frozenset[str], width: int) -> str:
    return f"flush({text}, {width})" if "ftz" in given else text


def _arithmetic(e: Emitter, i: Instruction) -> None:
    """add sub mul div fma mad min max abs neg of f16, bf16, f32, f64 and pairs of the 16-bit ones."""
    name, kind = i.parts[0], i.parts[-1]
    given = e.allow("ftz", "sat", "approx", "full", "NaN", "relu", "xorsign", "oob", *ROUNDINGS, *FLOATS)
    if given & {"xorsign", "oob"} or ("relu" in given and name != "fma") or kind == "tf32" or len(given & FLOATS) > 1:
        e.unsupported("this combination of modifiers")
    width = bits_of(kind)
    values = [_flushed(e.use(operand, width, kind), given, width) for operand in i.operands[1:]]
    call = f"float_{name}(({', '.join(values)},), {kind!r}, {_rounding(i)!r}, {'NaN' in given})"
    if "ftz" in given:
        call = f"flush({call}, {width})"
    if "sat" in given:
        call = f"saturate_kind({call}, {kind!r})"
    if "relu" in given:
        call = f"float_max(({call}, 0), {kind!r}, 'rn', True)"
    e.put(i.operands[0], call, width)


for _name in ("add", "sub", "mul", "div", "mad", "min", "max", "abs", "neg"):
    _float(_name)
instruction("fma")(_arithmetic)


def _function(name: str) -> Emit:
    def emit(e: Emitter, i: Instruction) -> None:
        kind = i.parts[-1]
        given = e.allow("approx", "ftz", *ROUNDINGS, "f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
        width = bits_of(kind)
        value = _flushed(e.use(i.operands[1], width, kind), given, width)
        text = f"function_kind({name!r}, {value}, {kind!r}, {_rounding(i)!r})"
        e.put(i.operands[0], _flushed(text, given, width), width)

    return emit


for _name in ("ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rcp", "rsqrt"):
    instruction(_name)(_function(_name))


@instruction("copysign")
def _copysign(e: Emitter, i: Instruction) -> None:
    e.allow("f32", "f64")
    width = bits_of(i.parts[-1])
    a, b = e.use(i.operands[1], width, i.parts[-1]), e.use(i.operands[2], width, i.parts[-1])
    e.put(i.operands[0], f"copy_sign({a}, {b}, {width})", width)


@instruction("testp")
def _testp(e: Emitter, i: Instruction) -> None:
    e.allow("finite", "infinite", "number", "notanumber", "normal", "subnormal", "f32", "f64")
    width = bits_of(i.parts[-1])
    e.put(i.operands[0], f"test_property({e.use(i.operands[1], width)}, {width}, {i.parts[1]!r})", 1)


# -- cvt -----------------------------------------------------------------------------------------------------------------------

_INTEGER_ROUNDINGS = ("rni", "rzi", "rmi", "rpi")
_MODIFIERS = frozenset({"ftz", "sat", "satfinite", "relu", "rna", "scaled", *ROUNDINGS, *_INTEGER_ROUNDINGS})


@instruction("cvt")
def _cvt(e: Emitter, i: Instruction) -> None:
    given = frozenset(i.parts[1:-2]) & _MODIFIERS
    types = [part for part in i.parts[1:] if part not in _MODIFIERS]
    if len(types) != 2 or "scaled" in given or any(kind not in TYPE_BYTES and kind not in FLOATS for kind in types):
        e.unsupported("this conversion")
    if i.parts[1] == "pack":
        e.unsupported("cvt.pack")
    target, source = types
    sources, targets = source in _ALL_FLOATS, target in _ALL_FLOATS
    if target.endswith("x2") or source.endswith("x2"):
        _cvt_pair(e, i, target, source, given)
    elif not sources and not targets:
        _cvt_integer(e, i, target, source, given)
    elif sources and targets:
        _cvt_float(e, i, target, source, given)
    elif sources:
        width = bits_of(source)
        value = _flushed(e.use(i.operands[1], width, source), given, width)
        mode = next((part for part in _INTEGER_ROUNDINGS if part in given), "rzi")
        text = f"float_to_integer({value}, {source!r}, {bits_of(target)}, {target in SIGNED_TYPES}, {mode!r})"
        e.put(i.operands[0], text, bits_of(target))
    else:
        width = bits_of(source)
        value = e.use(i.operands[1], width)
        text = f"integer_to_float({value}, {width}, {source in SIGNED_TYPES}, {target!r}, {_rounding(i)!r})"
        e.put(i.operands[0], text, bits_of(target))


_ALL_FLOATS = FLOATS | {"e4m3x2", "e5m2x2"}


def _cvt_integer(e: Emitter, i: Instruction, target: str, source: str, given: frozenset[str]) -> None:
    if given - {"sat"}:
        e.unsupported("a rounding between integers")
    from_bits, to_bits = bits_of(source), bits_of(target)
    value = e.use(i.operands[1], from_bits)
    if "sat" in given:
        text = f"saturate_integer({value}, {from_bits}, {source in SIGNED_TYPES}, {to_bits}, {target in SIGNED_TYPES})"
    elif source in SIGNED_TYPES and to_bits > from_bits:
        text = f"extend({value}, {from_bits}, {to_bits})"
    else:
        text = f"cast({value}, {to_bits})" if to_bits != from_bits else value
    # The register may be wider than the type: a signed result is sign-extended to it, an unsigned one zero-extended.
    own = bits_of(getattr(i.operands[0], "type", target))
    if target in SIGNED_TYPES and own > to_bits:
        e.put(i.operands[0], f"extend({text}, {to_bits}, {own})", own)
    else:
        e.put(i.operands[0], text, to_bits)


def _cvt_float(e: Emitter, i: Instruction, target: str, source: str, given: frozenset[str]) -> None:
    width = bits_of(source)
    value = _flushed(e.use(i.operands[1], width, source), given, width)
    mode = next((part for part in _INTEGER_ROUNDINGS if part in given), None)
    if mode is not None:
        if target != source:
            e.unsupported("an integer rounding with a change of type")
        text = f"round_to_integer({value}, {source!r}, {mode!r})"
    elif target == source:
        text = value
    else:
        rounding = "rna" if "rna" in given else _rounding(i)
        saturating = "satfinite" in given
        text = f"convert_float({value}, {source!r}, {target!r}, {rounding!r}, {saturating}, {'relu' in given})"
    if "sat" in given:
        text = f"saturate_kind({text}, {target!r})"
    e.put(i.operands[0], text, bits_of(target))


def _cvt_pair(e: Emitter, i: Instruction, target: str, source: str, given: frozenset[str]) -> None:
    """Two values at once: cvt.rn.bf16x2.f32 d, a, b puts a into the upper half; cvt.rn.f16x2.e4m3x2 d, a."""
    flags = f"{_rounding(i)!r}, {'satfinite' in given}, {'relu' in given}"
    if source.endswith("x2"):
        value = e.use(i.operands[1], bits_of(source))
        text = f"convert_pair({value}, {source[:-2]!r}, {target[:-2]!r}, {flags})"
    else:
        high, low = e.use(i.operands[1], bits_of(source), source), e.use(i.operands[2], bits_of(source), source)
        text = f"convert_two({high}, {low}, {source!r}, {target[:-2]!r}, {flags})"
    e.put(i.operands[0], text, bits_of(target))
