"""mbarriers, bulk copies, tensor copies, wgmma, matrix loads and stores, mma.sync (PTX ISA 9.7.13.15, 9.7.9.25 to 9.7.9.27, 9.7.14, 9.7.15)."""

from __future__ import annotations

import re

from .emit import Emitter, instruction
from .isa_memory import immediate_int
from .ptx import Instruction
from .ptx_operands import Bracket, Immediate, Operand, Register, Symbol, Vector

_SHARED = frozenset({"shared", "shared::cta", "shared::cluster"})


def _barrier_address(e: Emitter, operand: Operand, given: frozenset[str]) -> tuple[str, bool]:
    """The shared address of a barrier, and whether it may be another block's."""
    if given & _SHARED:
        return e.address(operand, 32), "shared::cluster" in given
    return f"shared_of_generic(g, {e.address(operand, 64)})", True


@instruction("mbarrier")
def _mbarrier(e: Emitter, i: Instruction) -> None:
    action = i.parts[1]
    given = frozenset(i.parts[2:])
    allowed = _SHARED | {"b64", "release", "relaxed", "acquire", "cta", "cluster", "expect_tx", "noComplete"}
    if given - allowed:
        e.unsupported(f"modifier .{sorted(given - allowed)[0]}")
    operands = list(i.operands)
    if action == "pending_count":
        e.put(operands[0], f"cast({e.use(operands[1], 64)} & 1048575, 32)", 32)
        return
    destination: Operand = Symbol("_")
    if not isinstance(operands[0], Bracket):
        destination = operands.pop(0)
    address, remote = _barrier_address(e, operands[0], given)
    values = [e.use(operand, 32) for operand in operands[1:]]
    e.at()
    release = "relaxed" not in given
    if action == "init":
        e.line(f"mbarrier_init(g, {e.mask}, {address}, {values[0]})")
    elif action == "inval":
        e.line(f"mbarrier_invalidate(g, {e.mask}, {address})")
    elif action in ("arrive", "arrive_drop"):
        drop, expect, partial = action == "arrive_drop", "expect_tx" in given, "noComplete" in given
        value = values[0] if values else "0" if expect else "1"
        text = f"mbarrier_arrive(g, {e.mask}, {address}, {value}, {expect}, {drop}, {partial}, {remote}, {release})"
        e.put(destination, text, 64)
    elif action in ("expect_tx", "complete_tx"):
        e.line(f"mbarrier_tx(g, {e.mask}, {address}, {values[0]}, {action == 'expect_tx'}, {remote})")
    else:
        e.unsupported()


# -- copies ----------------------------------------------------------------------------------------------------------------------


@instruction("cp")
def _cp(e: Emitter, i: Instruction) -> None:
    e.at()
    parts = i.parts[1:]
    if parts[:2] == ("async", "bulk"):
        _bulk(e, i, parts[2:], None)
    elif parts[:3] == ("reduce", "async", "bulk"):
        operations = {"add", "min", "max", "inc", "dec", "and", "or", "xor"} & set(parts)
        _bulk(e, i, tuple(part for part in parts[3:] if part not in operations), next(iter(operations)))
    elif parts[0] == "async":
        _cp_async(e, i, parts[1:])
    else:
        e.unsupported()


def _bulk(e: Emitter, i: Instruction, parts: tuple[str, ...], reduction: str | None) -> None:
    if parts[0] == "commit_group":
        e.line(f"bulk_commit(g, {e.mask})")
    elif parts[0] == "wait_group":
        e.line(f"bulk_wait(g, {e.mask}, {immediate_int(e, i.operands[0])}, {'read' in parts})")
    elif parts[0] == "prefetch":
        if "tensor" in parts:
            target = i.operands[0]
            if not isinstance(target, Bracket) or set(parts) - _PREFETCH_WORDS:
                e.unsupported()
            e.line(
                f"tensor_prefetch(g, {e.mask}, {e.address(target, 64)}, ({_coordinates(e, target)}), {'tile::gather4' in parts})"
            )
    elif parts[0] == "tensor":
        _tensor(e, i, parts[1:], reduction)
    else:
        _plain_bulk(e, i, parts, reduction)


def _coordinates(e: Emitter, bracket: Bracket) -> str:
    return "".join(f"{e.use(item, 32)}, " for item in e.items(bracket.rest[0]))


def _hints(e: Emitter, i: Instruction, parts: tuple[str, ...], operands: list[Operand]) -> str:
    """Takes the multicast mask and the cache policy off the operands; returns the mask's text."""
    if "L2::cache_hint" in parts:
        e.use(operands.pop(), 64)
    if "multicast::cluster" in parts:
        return e.use(operands.pop(), 16)
    return "None"


_BULK_WORDS = frozenset(
    {
        "tile",
        "L2::cache_hint",
        "multicast::cluster",
        "bulk_group",
        "mbarrier::complete_tx::bytes",
        "global",
        "noftz",
        *_SHARED,
    }
)


_PREFETCH_WORDS = frozenset(
    {"prefetch", "tensor", "1d", "2d", "3d", "4d", "5d", "L2", "global", "tile", "tile::gather4", "L2::cache_hint"}
)


def _tensor(e: Emitter, i: Instruction, parts: tuple[str, ...], reduction: str | None) -> None:
    group = next((int(part[-1]) for part in parts if part in ("cta_group::1", "cta_group::2")), 0)
    four = bool({"tile::gather4", "tile::scatter4"} & set(parts))
    if (group or four) and not e.module.target.startswith(("sm_100", "sm_101", "sm_103", "sm_110")):
        e.unsupported(f"this form for the target {e.module.target}: it needs sm_100a")
    allowed = _BULK_WORDS | {"1d", "2d", "3d", "4d", "5d", "cta_group::1", "cta_group::2"}
    extra = set(parts) - allowed - {"tile::scatter4" if parts[1] == "global" else "tile::gather4"}
    if extra:
        e.unsupported(f"modifier .{sorted(extra)[0]}")
    operands = list(i.operands)
    multicast = _hints(e, i, parts, operands)
    # Four rows are one column and four rows: five coordinates for two dimensions.
    rank = 5 if four else int(parts[0][0])
    if four and (parts[0] != "2d" or reduction is not None):
        e.unsupported("this form")
    if parts[1] == "global":
        tensor, source = operands
        assert isinstance(tensor, Bracket)
        if len(e.items(tensor.rest[0])) != rank:
            e.unsupported(f"{len(e.items(tensor.rest[0]))} coordinates")
        e.line(
            f"tensor_store(g, {e.mask}, {e.address(tensor, 64)}, ({_coordinates(e, tensor)}), {e.address(source, 32)}, {reduction!r}, {four})"
        )
        return
    target, tensor, barrier = operands
    assert isinstance(tensor, Bracket)
    if reduction is not None or len(e.items(tensor.rest[0])) != rank:
        e.unsupported()
    e.line(
        f"tensor_load(g, {e.mask}, {e.address(target, 32)}, {e.address(tensor, 64)}, ({_coordinates(e, tensor)}), "
        f"{e.address(barrier, 32)}, {multicast}, {group}, {four})"
    )


def _plain_bulk(e: Emitter, i: Instruction, parts: tuple[str, ...], reduction: str | None) -> None:
    kinds = {"f16", "bf16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"}
    extra = set(parts) - _BULK_WORDS - (kinds if reduction else set())
    if extra:
        e.unsupported(f"modifier .{sorted(extra)[0]}")
    operands = list(i.operands)
    multicast = _hints(e, i, parts, operands)
    spaces = [part for part in parts if part == "global" or part in _SHARED]
    target, source, size = operands[:3]
    to_global, from_global = spaces[0] == "global", spaces[1] == "global"
    addresses = f"{e.address(target, 64 if to_global else 32)}, {e.address(source, 64 if from_global else 32)}, {e.use(size, 32)}"
    kind = next((part for part in parts if part in kinds), None)
    if to_global:
        e.line(f"bulk_store(g, {e.mask}, {addresses}, {reduction!r}, {kind!r})")
    else:
        barrier = e.address(operands[3], 32)
        e.line(f"bulk_load(g, {e.mask}, {addresses}, {barrier}, {multicast}, {from_global}, {reduction!r}, {kind!r})")


def _cp_async(e: Emitter, i: Instruction, parts: tuple[str, ...]) -> None:
    if parts[0] == "commit_group":
        e.line(f"copy_commit(g, {e.mask})")
    elif parts[0] == "wait_group":
        e.line(f"copy_wait(g, {e.mask}, {immediate_int(e, i.operands[0])})")
    elif parts[0] == "wait_all":
        e.line(f"copy_wait(g, {e.mask}, -1)")
    elif parts[:2] == ("mbarrier", "arrive"):
        given = frozenset(parts)
        address, _ = _barrier_address(e, i.operands[0], given)
        e.line(f"copy_arrive(g, {e.mask}, {address}, {'noinc' in given})")
    elif parts[0] in ("ca", "cg"):
        operands = list(i.operands)
        if "L2::cache_hint" in parts:
            operands.pop()
        size = immediate_int(e, operands[2])
        filled = e.use(operands[3], 32) if len(operands) > 3 else str(size)
        ignored = "None"
        if len(operands) > 3 and isinstance(operands[3], Register) and operands[3].type == "pred":
            filled, ignored = str(size), e.use(operands[3], 1)
        e.line(
            f"copy_async(g, {e.mask}, {e.address(operands[0], 32)}, {e.address(operands[1], 64)}, {size}, {filled}, {ignored})"
        )
    else:
        e.unsupported()


# -- wgmma -----------------------------------------------------------------------------------------------------------------------

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")


@instruction("wgmma")
def _wgmma(e: Emitter, i: Instruction) -> None:
    e.at()
    action = i.parts[1]
    if e.guarded:
        e.unsupported("a guarded wgmma instruction")
    if action == "fence":
        e.line("wgmma_fence(g)")
    elif action == "commit_group":
        e.line("wgmma_commit(g)")
    elif action == "wait_group":
        e.line(f"wgmma_wait(g, {immediate_int(e, i.operands[0])})")
    elif action == "mma_async":
        _mma_async(e, i)
    else:
        e.unsupported()


def _mma_async(e: Emitter, i: Instruction) -> None:
    parts = [part for part in i.parts[2:] if part not in ("sync", "aligned")]
    if "sp" in parts:
        e.unsupported("sparse wgmma")
    saturate = "satfinite" in parts
    parts = [part for part in parts if part != "satfinite"]
    found = _SHAPE.match(parts[0])
    if found is None or found[1] != "64" or len(parts) != 4:
        e.unsupported()
    d, a, b = parts[1:]
    names = {"s32": "s32", "f32": "f32", "f16": "f16"}
    target, left, right, scale, *flags = i.operands
    numbers = [immediate_int(e, flag) for flag in flags]
    negate_a, negate_b = (numbers[0] == -1, numbers[1] == -1) if len(numbers) >= 2 else (False, False)
    majors = numbers[2:]
    registers = isinstance(left, Vector)
    a_major = "mn" if majors and not registers and majors[0] else "k"
    b_major = "mn" if majors and majors[-1] else "k"
    if d not in names:
        e.unsupported(f"accumulators of type .{d}")
    slots = e.slots(target)
    e.touch(slots)
    sources: tuple[int, ...] = ()
    if isinstance(left, Vector):
        sources = e.slots(left)
        e.touch(sources)
        a_text = f"gather_registers(R, {sources!r}, g.width, g)"
    else:
        a_text = e.use(left, 64)
    b_text = e.use(right, 64)
    scale_text = (
        e.use(scale, 1) if isinstance(scale, Register) else str(bool(isinstance(scale, Immediate) and scale.value))
    )
    key = (int(found[2]), int(found[3]), a, b, d, a_major, b_major, negate_a, negate_b, saturate)
    e.flush()
    e.line(f"wgmma_issue(g, R, {slots!r}, {sources!r}, {key!r}, {a_text}, {b_text}, {scale_text})")
    e.forget(slots)


# -- matrices of a warp ----------------------------------------------------------------------------------------------------------


@instruction("ldmatrix", "stmatrix")
def _matrix(e: Emitter, i: Instruction) -> None:
    given = e.allow("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
    count = int(next(part for part in i.parts if part in ("x1", "x2", "x4"))[1])
    load = i.parts[0] == "ldmatrix"
    vector, bracket = (i.operands[0], i.operands[1]) if load else (i.operands[1], i.operands[0])
    items = e.items(vector)
    if len(items) != count or "m8n8" not in given:
        e.unsupported()
    address = e.address(bracket, 32) if given & _SHARED else f"shared_of_generic(g, {e.address(bracket, 64)})"
    if load:
        e.at()
        name = e.name()
        e.line(f"{name} = load_matrix(g, {e.mask}, {address}, {count}, {'trans' in given})")
        for number, item in enumerate(items):
            e.put(item, f"{name}[{number}]", 32)
    else:
        values = ", ".join(e.use(item, 32) for item in items)
        e.at()
        e.line(f"store_matrix(g, {e.mask}, {address}, ({values},), {'trans' in given})")


@instruction("movmatrix")
def _movmatrix(e: Emitter, i: Instruction) -> None:
    e.allow("sync", "aligned", "m8n8", "trans", "b16")
    e.at()
    e.put(i.operands[0], f"move_matrix(g, {e.mask}, {e.use(i.operands[1], 32)})", 32)


@instruction("mma")
def _mma(e: Emitter, i: Instruction) -> None:
    parts = [part for part in i.parts[1:] if part not in ("sync", "aligned")]
    saturate = "satfinite" in parts
    parts = [part for part in parts if part != "satfinite"]
    found = _SHAPE.match(parts[0])
    if found is None or len(parts) != 7 or parts[1:3] != ["row", "col"]:
        e.unsupported()
    d, a, b, c = parts[3:]
    if c != d:
        e.unsupported("C and D of different types")
    groups = ["(" + "".join(f"{e.use(item, 32)}, " for item in e.items(operand)) + ")" for operand in i.operands[1:4]]
    e.at()
    name = e.name()
    shape = (int(found[1]), int(found[2]), int(found[3]))
    e.line(f"{name} = mma_sync(g, {e.mask}, {shape!r}, {a!r}, {b!r}, {d!r}, {saturate}, {', '.join(groups)})")
    for number, item in enumerate(e.items(i.operands[0])):
        e.put(item, f"{name}[{number}]", 32)
