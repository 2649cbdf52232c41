"""Warp, block and cluster instructions: shuffles, votes, named and cluster barriers, register counts (PTX ISA 9.7.13, 9.7.19)."""

from __future__ import annotations

from collections.abc import Callable

from .emit import SIGNED_TYPES, Emitter, instruction
from .isa_memory import immediate_int
from .ptx import Instruction
from .ptx_operands import Immediate, Pair, Symbol

Block = Callable[[Emitter, Instruction, int, int], None]
BLOCKING: dict[str, Block] = {}
"""Instructions that may have to wait. Each is a block of its own; its text ends in the block that follows, or PARK."""


_LOCAL_SPACES = frozenset({"shared", "shared::cta", "shared::cluster", "local", "param", "const"})


def blocking(*names: str) -> Callable[[Block], Block]:
    """Enters a function in BLOCKING."""

    def enter(function: Block) -> Block:
        for name in names:
            BLOCKING[name] = function
        return function

    return enter


def is_blocking(i: Instruction) -> Block | None:
    """The emitter of an instruction that may wait, or None."""
    if i.parts[0] in ("ld", "atom") and _LOCAL_SPACES & frozenset(i.parts):
        return None  # only global memory is polled
    for length in (3, 2, 1):
        found = BLOCKING.get(".".join(i.parts[:length]))
        if found is not None:
            return found
    return None


def _member_mask(e: Emitter, i: Instruction, position: int) -> str:
    return e.use(i.operands[position], 32)


@instruction("shfl")
def _shfl(e: Emitter, i: Instruction) -> None:
    given = e.allow("sync", "up", "down", "bfly", "idx", "b32")
    if "sync" not in given:
        e.unsupported("shfl without .sync")
    mode = next(iter(given & {"up", "down", "bfly", "idx"}))
    a, b, c = (e.use(operand, 32) for operand in i.operands[1:4])
    members = _member_mask(e, i, 4)
    destination = i.operands[0]
    e.at()
    name = e.name()
    e.line(f"{name} = shuffle(g, {e.mask}, {mode!r}, {a}, {b}, {c}, {members})")
    if isinstance(destination, Pair):
        e.put(destination.first, f"{name}[0]", 32)
        e.put(destination.second, f"{name}[1]", 1)
    else:
        e.put(destination, f"{name}[0]", 32)


@instruction("vote")
def _vote(e: Emitter, i: Instruction) -> None:
    given = e.allow("sync", "all", "any", "uni", "ballot", "pred", "b32")
    if "sync" not in given:
        e.unsupported("vote without .sync")
    mode = i.parts[2]
    e.at()
    text = f"vote(g, {e.mask}, {mode!r}, {e.use(i.operands[1], 1)}, {_member_mask(e, i, 2)})"
    e.put(i.operands[0], text, 32 if mode == "ballot" else 1)


@instruction("match")
def _match(e: Emitter, i: Instruction) -> None:
    given = e.allow("sync", "any", "all", "b32", "b64")
    width = 64 if "b64" in given else 32
    destination = i.operands[0]
    e.at()
    name = e.name()
    e.line(f"{name} = match(g, {e.mask}, {'all' in given}, {e.use(i.operands[1], width)}, {_member_mask(e, i, 2)})")
    if isinstance(destination, Pair):
        e.put(destination.first, f"{name}[0]", 32)
        e.put(destination.second, f"{name}[1]", 1)
    else:
        e.put(destination, f"{name}[0]", 32)


@instruction("redux")
def _redux(e: Emitter, i: Instruction) -> None:
    given = e.allow("sync", "add", "min", "max", "and", "or", "xor", "b32", "u32", "s32")
    kind = i.parts[-1]
    operation = next(iter(given & {"add", "min", "max", "and", "or", "xor"}))
    e.at()
    text = f"warp_reduce(g, {e.mask}, {operation!r}, {e.use(i.operands[1], 32)}, {_member_mask(e, i, 2)}, {kind in SIGNED_TYPES})"
    e.put(i.operands[0], text, 32)


@instruction("activemask")
def _activemask(e: Emitter, i: Instruction) -> None:
    e.put(i.operands[0], f"active_mask(g, {e.mask})", 32)


@instruction("elect")
def _elect(e: Emitter, i: Instruction) -> None:
    e.allow("sync")
    destination = i.operands[0]
    if not isinstance(destination, Pair):
        e.unsupported("elect without a predicate")
    e.at()
    name = e.name()
    e.line(f"{name} = elect(g, {e.mask}, {_member_mask(e, i, 1)})")
    if not (isinstance(destination.first, Symbol) and destination.first.name == "_"):
        e.put(destination.first, f"{name}[1]", 32)
    e.put(destination.second, f"{name}[0]", 1)


@instruction("griddepcontrol")
def _griddepcontrol(e: Emitter, i: Instruction) -> None:
    """One grid runs alone: what came before it is complete, and nothing depends on it."""
    e.allow("launch_dependents", "wait")


# -- blocks of their own ---------------------------------------------------------------------------------------------------------


def enter_blocking(e: Emitter, i: Instruction, block: int, following: int) -> None:
    """The guard of an instruction that may wait: threads that do not execute it go on alone."""
    e.current = i
    e.body = []
    e.guarded = False
    if i.guard is not None:
        predicate = e.use(i.guard, 1)
        e.lines.append(f"m = {'guard_not' if i.negated else 'guard'}(g, {predicate})")
        e.lines.append(f"if m is False: return {following}")
        e.lines.append(f"if m is not g.mask: return split_off(g, m, {block}, {following})")
    e.at()


def _by_value(e: Emitter, values: tuple[str, ...], block: int, following: int) -> None:
    """Threads with different barriers go on as gangs of their own."""
    if not all(value.isdigit() for value in values):
        e.line(f"sides = split_by_value(g, ({', '.join(values)},), {block}, {following})")
        e.line("if sides is not None: return sides")


@blocking("bar.sync", "barrier.sync", "bar.cta", "barrier.cta", "bar.red", "barrier.red", "bar.warp")
def _bar(e: Emitter, i: Instruction, block: int, following: int) -> None:
    enter_blocking(e, i, block, following)
    parts = [part for part in i.parts[1:] if part not in ("cta", "aligned")]
    if parts == ["warp", "sync"]:
        e.line(f"warp_sync(g, g.mask, {e.use(i.operands[0], 32)})")
        e.line(f"return {following}")
        return
    aligned = i.parts[0] == "bar" or "aligned" in i.parts
    if parts[0] == "sync":
        number = e.use(i.operands[0], 32)
        count = e.use(i.operands[1], 32) if len(i.operands) > 1 else "0"
        _by_value(e, (number, count), block, following)
        e.line(f"if bar_sync(g, {number}, {count}, {aligned}): return {following}")
        e.line(f"g.pc = {following}")
        e.line("return PARK")
    elif parts[0] == "arrive":
        number, count = e.use(i.operands[0], 32), e.use(i.operands[1], 32)
        _by_value(e, (number, count), block, following)
        e.line(f"bar_arrive(g, {number}, {count}, {aligned})")
        e.line(f"return {following}")
    elif parts[0] == "red":
        _bar_red(e, i, parts, aligned, block, following)
    else:
        e.unsupported()


def _bar_red(e: Emitter, i: Instruction, parts: list[str], aligned: bool, block: int, following: int) -> None:
    """A barrier that counts predicates: the block is run again when it is complete, and then has the result."""
    number, *count, predicate = (
        e.use(operand, width) for operand, width in zip(i.operands[1:], _red_widths(i), strict=True)
    )
    name = e.name()
    e.line(f"{name} = bar_reduce(g, {number}, {count[0] if count else 0}, {aligned}, {predicate})")
    e.line(f"if {name} is None:")
    e.line(f" g.pc = {block}")
    e.line(" return PARK")
    results = {"popc": f"{name}[0]", "and": f"{name}[0] == {name}[1]", "or": f"{name}[0] > 0"}
    if parts[1] not in results:
        e.unsupported()
    e.put(i.operands[0], results[parts[1]], 32 if parts[1] == "popc" else 1)
    e.flush()
    e.line(f"return {following}")


def _red_widths(i: Instruction) -> list[int]:
    return [32] * (len(i.operands) - 2) + [1]


BLOCKING["bar.arrive"] = BLOCKING["barrier.arrive"] = _bar


@blocking("barrier.cluster")
def _barrier_cluster(e: Emitter, i: Instruction, block: int, following: int) -> None:
    enter_blocking(e, i, block, following)
    given = e.allow("cluster", "arrive", "wait", "aligned", "release", "relaxed", "acquire")
    if "arrive" in given:
        e.line(f"cluster_arrive(g, {'aligned' in given}, {'relaxed' not in given})")
        e.line(f"return {following}")
    else:
        e.line(f"if cluster_wait(g, {'aligned' in given}): return {following}")
        e.line(f"g.pc = {block}")
        e.line("return PARK")


@blocking("setmaxnreg")
def _setmaxnreg(e: Emitter, i: Instruction, block: int, following: int) -> None:
    enter_blocking(e, i, block, following)
    given = e.allow("inc", "dec", "sync", "aligned", "u32")
    e.line(f"if set_register_count(g, {immediate_int(e, i.operands[0])}, {'inc' in given}): return {following}")
    e.line(f"g.pc = {block}")
    e.line("return PARK")


@blocking("nanosleep")
def _nanosleep(e: Emitter, i: Instruction, block: int, following: int) -> None:
    e.current = i
    e.line(f"g.pc = {following}")
    e.line("return YIELD")


def parity_or_state(e: Emitter, i: Instruction) -> tuple[str, str, bool]:
    """(barrier address, parity or token, is parity) of test_wait and try_wait."""
    given = e.allow(
        "test_wait", "try_wait", "parity", "shared", "shared::cta", "b64", "acquire", "relaxed", "cta", "cluster"
    )
    shared = bool(given & {"shared", "shared::cta"})
    address = e.address(i.operands[1], 32) if shared else f"shared_of_generic(g, {e.address(i.operands[1], 64)})"
    by_parity = "parity" in given
    return address, e.use(i.operands[2], 32 if by_parity else 64), by_parity


@blocking("mbarrier.try_wait", "mbarrier.test_wait")
def _try_wait(e: Emitter, i: Instruction, block: int, following: int) -> None:
    enter_blocking(e, i, block, following)
    address, value, by_parity = parity_or_state(e, i)
    blocks = i.parts[1] == "try_wait"
    acquire = "relaxed" not in i.parts
    name = e.name()
    e.line(f"{name} = try_wait(g, {address}, {value}, {by_parity}, {blocks}, {acquire})")
    e.line(f"if {name} is None:")
    e.line(f" g.pc = {block}")
    e.line(" return PARK")
    e.put(i.operands[0], name, 1)
    e.flush()
    if blocks:
        e.line(f"return {following}")
    else:
        e.line(f"if {name} is True: return {following}")
        e.line(f"g.pc = {following}")
        e.line("return YIELD")


def constant_zero(operand: object) -> bool:
    """Whether an operand is the number 0."""
    return isinstance(operand, Immediate) and not operand.value
