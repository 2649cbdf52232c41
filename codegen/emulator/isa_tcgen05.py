"""tcgen05: tensor memory and the tensor core of sm_100a (PTX ISA 9.1, section 9.7.16). Emulated, never run on hardware; what is not known is refused.

Refused: tcgen05.shift and .ashift (PTX says "downwards ... except the last" row, and not which row's number grows), sparse A, K = 96, block
scaling of a pair with M = 128, an absolute LBO, zero-column masks, ld.red, .cta_group::2 issued by the odd block; and words that a copy has decompressed,
to all but the tcgen05.mma that takes A of that type from them.
Assumed, for somebody with the chip to look at (tests/codegen/emulator/test_tcgen05_gpu.py compares all of tensor memory): f16 accumulators and .unpack::16b
leave zeros in the upper halves; scale factors are the same in all four quarters of lanes; descriptors address shared memory as wgmma's were measured to;
tcgen05.cp reads rows as a K-major operand lies; a warp that deallocates needs no tcgen05.fence; and numerics="hardware".
"""

from __future__ import annotations

from .collectors import OPERATIONS
from .emit import Emitter, instruction
from .isa_async import _barrier_address
from .isa_memory import immediate_int
from .isa_warp import blocking, enter_blocking
from .ops_tcgen05 import COPIES
from .ptx import Instruction
from .ptx_operands import Bracket, Operand, Register, Vector
from .tmem import SOURCES

_KINDS = ("f16", "tf32", "f8f6f4", "i8")
# Elements that share a scale factor: by kind and qualifier; "" where PTX has a default (PTX ISA 9.1, section 9.7.16.10.7).
_VECTORS = {
    "mxf8f6f4": {"": 32, "scale_vec::1X": 32, "block32": 32},
    "mxf4": {"": 32, "scale_vec::2X": 32, "block32": 32},
    "mxf4nvf4": {"scale_vec::2X": 32, "block32": 32, "scale_vec::4X": 16, "block16": 16},
}
_SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
# The collector buffers of tcgen05.mma and, from True on, of tcgen05.mma.ws; the first is that of an instruction that names none.
_COLLECTORS = {False: ("a",), True: ("b0", "b1", "b2", "b3")}


def _check_target(e: Emitter) -> None:
    """tcgen05 needs sm_100a, sm_103a, sm_110a or one of their families (PTX ISA 9.1, target notes)."""
    target = e.module.target
    if not target.startswith(("sm_100", "sm_101", "sm_103", "sm_110")) or target[-1] not in "af":
        e.unsupported(f"tcgen05 is for sm_100a, sm_103a and sm_110a, and this PTX is for {target or 'no target'}")


def _group(e: Emitter, parts: tuple[str, ...]) -> int:
    found = [number for number in (1, 2) if f"cta_group::{number}" in parts]
    if len(found) != 1:
        e.unsupported("it needs one .cta_group")
    return found[0]


@instruction("tcgen05")
def _tcgen05(e: Emitter, i: Instruction) -> None:
    _check_target(e)
    action = i.parts[1]
    function = {"mma": _mma, "commit": _commit, "ld": _ld, "st": _st, "cp": _cp}.get(action)
    if function is not None:
        function(e, i)
    elif action in ("wait::ld", "wait::st"):
        if set(i.parts[2:]) != {"sync", "aligned"}:
            e.unsupported()
        e.at()
        e.line(f"tmem_wait(g, {e.mask}, {action[-2:]!r})")
    elif action in ("fence::before_thread_sync", "fence::after_thread_sync") and len(i.parts) == 2:
        e.at()
        e.line(f"tcgen05_fence(g, {e.mask}, {'before' in action})")
    elif action == "shift":
        e.unsupported(
            "PTX says that rows move downwards, except the last: not whether to the lane above or below, nor how many rows there are"
        )
    else:
        e.unsupported()


# -- allocation ------------------------------------------------------------------------------------------------------------------


@blocking("tcgen05.alloc", "tcgen05.dealloc", "tcgen05.relinquish_alloc_permit")
def _allocation(e: Emitter, i: Instruction, block: int, following: int) -> None:
    enter_blocking(e, i, block, following)
    _check_target(e)
    action = i.parts[1]
    given = e.allow(action, "cta_group::1", "cta_group::2", "sync", "aligned", "shared::cta", "b32")
    if not {"sync", "aligned"} <= given:
        e.unsupported("without .sync.aligned")
    group = _group(e, i.parts)
    e.line(f"sides = split_warps(g, {block}, {following})")
    e.line("if sides is not None: return sides")
    if action == "alloc":
        address, _ = _barrier_address(e, i.operands[0], given)
        text = f"tmem_alloc(g, {address}, {e.use(i.operands[1], 32)}, {group})"
    elif action == "dealloc":
        text = f"tmem_dealloc(g, {e.use(i.operands[0], 32)}, {e.use(i.operands[1], 32)}, {group})"
    else:
        text = f"tmem_relinquish(g, {group})"
    e.line(f"if {text}: return {following}")
    e.line(f"g.pc = {block}")
    e.line("return PARK")


# -- mma -------------------------------------------------------------------------------------------------------------------------


def _mma(e: Emitter, i: Instruction) -> None:
    ws = i.parts[2] == "ws"
    parts = i.parts[3:] if ws else i.parts[2:]
    kind = next((part[6:] for part in parts if part.startswith("kind::")), "")
    vectors = _VECTORS.get(kind, {})
    if kind not in _KINDS and not vectors:
        e.unsupported(f"kind {kind or 'none'}: {', '.join((*_KINDS, *_VECTORS))} are modelled")
    extra = set(parts) - {"cta_group::1", "cta_group::2", f"kind::{kind}"}
    buffers = {f"collector::{buffer}::{use}": (buffer, use) for buffer in _COLLECTORS[ws] for use in OPERATIONS}
    named = [name for name in buffers if name in extra]
    if len(named) > 1:
        e.unsupported("two collector buffers")
    extra -= set(named)
    collector = buffers[named[0]] if named else (_COLLECTORS[ws][0], "discard")
    vector = 0
    if vectors:
        if "block_scale" not in extra or ws:
            e.unsupported("this kind has .block_scale, and not .ws")
        extra.remove("block_scale")
        found = [name for name in vectors if name in extra or (not name and not extra)]
        if len(found) != 1:
            e.unsupported(f"its scale vector: {', '.join(name or 'none' for name in vectors)} are there")
        vector = vectors[found[0]]
        if found[0].startswith("scale_vec") and e.module.target.endswith("f"):
            e.unsupported(f".{found[0]} is for single architectures; {e.module.target} takes .block16 and .block32")
        extra.discard(found[0])
    if extra:
        e.unsupported(f"modifier .{sorted(extra)[0]}")
    if kind == "i8" and e.module.target not in ("sm_100a", "sm_110a"):
        e.unsupported(f"kind::i8 is for sm_100a and sm_110a, not {e.module.target}")
    group = _group(e, parts)
    if ws and group == 2:
        e.unsupported(".ws is for .cta_group::1")
    d, a, b, descriptor, *rest = i.operands
    scales = ""
    if vector:
        scales = "".join(f"{e.address(rest.pop(0), 32)}, " for _ in range(2))
    disabled: tuple[Operand, ...] = ()
    if rest and isinstance(rest[0], Vector) and not ws and not vector:
        disabled = e.items(rest.pop(0))
        if len(disabled) != 4 * group:
            e.unsupported(f"{len(disabled)} words of disable-output-lane, {4 * group} are needed")
    if not rest or len(rest) > (1 if ws or vector else 2):
        e.unsupported(f"{len(i.operands)} operands")
    scale = immediate_int(e, rest[1]) if len(rest) == 2 else 0
    in_memory = isinstance(a, Bracket) and not a.address_only
    left = e.address(a, 32) if in_memory else e.use(a, 64)
    masks = "".join(f"{e.use(item, 32)}, " for item in disabled)
    values = f"{e.address(d, 32)}, {left}, {e.use(b, 64)}, {e.use(descriptor, 32)}, {e.use(rest[0], 1)}"
    e.at()
    e.line(
        f"tcgen05_mma(g, {e.mask}, {kind!r}, {group}, {ws}, {in_memory}, {values}, ({masks}), {scale}, {vector}, ({scales}), {collector!r})"
    )


def _commit(e: Emitter, i: Instruction) -> None:
    given = frozenset(i.parts[2:])
    extra = given - {
        "cta_group::1", "cta_group::2", "mbarrier::arrive::one", "shared::cluster", "multicast::cluster", "b64",
    }  # fmt: skip
    if extra or not {"mbarrier::arrive::one", "b64"} <= given:
        e.unsupported(f"modifier .{sorted(extra)[0]}" if extra else "this form")
    address, _ = _barrier_address(e, i.operands[0], given)
    ranks = "None"
    if "multicast::cluster" in given:
        ranks = e.use(i.operands[1], 16)
    if len(i.operands) != 1 + ("multicast::cluster" in given):
        e.unsupported(f"{len(i.operands)} operands")
    e.at()
    e.line(f"tcgen05_commit(g, {e.mask}, {_group(e, i.parts)}, {address}, {ranks})")


# -- moves -----------------------------------------------------------------------------------------------------------------------


def _form(e: Emitter, i: Instruction, packing: str) -> tuple[str, int, bool]:
    """(shape, repeat, packed) of ld or st."""
    parts = i.parts[2:]
    shape = next((part for part in parts if part in _SHAPES), "")
    repeat = next((part for part in parts if part[0] == "x" and part[1:].isdigit()), "")
    extra = set(parts) - {"sync", "aligned", shape, repeat, packing, "b32"}
    if not shape or not repeat or extra or not {"sync", "aligned", "b32"} <= set(parts):
        e.unsupported(f"modifier .{sorted(extra)[0]}" if extra else "this form")
    return shape, int(repeat[1:]), packing in parts


def _count(e: Emitter, shape: str, repeat: int, given: int) -> None:
    from stridewright.layout.hardware.tensor_memory_moves import LOAD_SHAPES

    _, _, registers, largest = LOAD_SHAPES[shape]
    if repeat > largest or given != registers * repeat:
        e.unsupported(f"{given} registers of {shape}.x{repeat}")


def _ld(e: Emitter, i: Instruction) -> None:
    shape, repeat, packed = _form(e, i, "pack::16b")
    split = immediate_int(e, i.operands[2]) if shape == "16x32bx2" else 0
    slots = e.slots(i.operands[0])
    _count(e, shape, repeat, len(slots))
    if len(i.operands) != (3 if shape == "16x32bx2" else 2):
        e.unsupported(f"{len(i.operands)} operands")
    address = e.address(i.operands[1], 32)
    if e.guarded:
        e.touch(slots)
    e.flush()
    e.at()
    e.line(f"tmem_load(g, R, {e.mask}, {slots!r}, {shape!r}, {repeat}, {packed}, {split}, {address})")
    e.forget(slots)


def _st(e: Emitter, i: Instruction) -> None:
    shape, repeat, packed = _form(e, i, "unpack::16b")
    operands = list(i.operands)
    target = operands.pop(0)
    split = immediate_int(e, operands.pop(0)) if shape == "16x32bx2" else 0
    if len(operands) != 1:
        e.unsupported(f"{len(i.operands)} operands")
    items = e.items(operands[0])
    _count(e, shape, repeat, len(items))
    values = "".join(f"{e.use(item, 32)}, " for item in items)
    address = e.address(target, 32)
    e.at()
    e.line(f"tmem_store(g, {e.mask}, {shape!r}, {repeat}, {packed}, {split}, {address}, ({values}))")


def _cp(e: Emitter, i: Instruction) -> None:
    parts = set(i.parts[2:]) - {"cta_group::1", "cta_group::2"}
    bits = next((number for number, source in SOURCES.items() if {"b8x16", source} <= parts), 0)
    if bits:
        parts -= {"b8x16", SOURCES[bits]}
    found = next(((s, c) for s, c in COPIES if {s, c} - {""} == parts), None)
    if found is None:
        e.unsupported("a shape without its multicast, or half of a decompression (.b8x16.b4x16_p64, .b8x16.b6x16_p32)")
    shape, multicast = found
    e.at()
    e.line(
        f"tcgen05_copy(g, {e.mask}, {_group(e, i.parts)}, {shape!r}, {multicast!r}, {e.address(i.operands[0], 32)}, {e.use(i.operands[1], 64)}, {bits})"
    )


def fragment_slots(i: Instruction) -> list[int]:
    """Slots that hold a Fragment after this instruction: what tcgen05.ld writes."""
    if i.parts[:2] != ("tcgen05", "ld"):
        return []
    target = i.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    return [item.slot for item in items if isinstance(item, Register)]
