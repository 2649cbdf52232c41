"""clusterlaunchcontrol: taking over clusters of the grid that have not started (PTX ISA 9.7.13.17), and 128-bit registers for its answers.

A register of 128 bits holds a pair of 64-bit values, the low one first.
"""

from __future__ import annotations

from .emit import Emitter, instruction
from .ptx import Instruction
from .ptx_operands import Register, Symbol

_TARGETS = ("sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121")


@instruction("clusterlaunchcontrol")
def _launch_control(e: Emitter, i: Instruction) -> None:
    if not e.module.target.startswith(_TARGETS):
        e.unsupported(f"the target {e.module.target}; it needs sm_100 or higher")
    if i.parts[1] == "try_cancel":
        _try_cancel(e, i)
    elif i.parts[1] == "query_cancel":
        _query_cancel(e, i)
    else:
        e.unsupported()


def _try_cancel(e: Emitter, i: Instruction) -> None:
    given = e.allow(
        "try_cancel", "async", "shared::cta", "mbarrier::complete_tx::bytes", "multicast::cluster::all", "b128"
    )
    if not {"async", "mbarrier::complete_tx::bytes", "b128"} <= given:
        e.unsupported("this form")
    target, barrier = (
        e.address(operand, 32) if "shared::cta" in given else f"shared_of_generic(g, {e.address(operand, 64)})"
        for operand in i.operands
    )
    e.at()
    e.line(f"cancel_launch(g, {e.mask}, {target}, {barrier}, {'multicast::cluster::all' in given})")


_AXES = {"get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2}


def _query_cancel(e: Emitter, i: Instruction) -> None:
    answer = i.operands[1]
    if i.parts[-1] != "b128" or not isinstance(answer, Register) or answer.type != "b128":
        e.unsupported(f"an answer in {answer}")
    value = e.use(answer, 128)
    e.at()
    if i.parts[2:-1] == ("is_canceled", "pred"):
        e.put(i.operands[0], f"launch_cancelled(g, {e.mask}, {value})", 1)
    elif i.parts[2] in _AXES and i.parts[3:-1] == ("b32",):
        e.put(i.operands[0], f"cancelled_block(g, {value}, {_AXES[i.parts[2]]})", 32)
    elif i.parts[2:-1] == ("get_first_ctaid", "v4", "b32"):
        items = e.items(i.operands[0])
        if len(items) != 4:
            e.unsupported(f"{len(items)} destinations")
        for axis, item in enumerate(items):
            if not (isinstance(item, Symbol) and item.name == "_"):  # the fourth element is of no meaning
                e.put(item, f"cancelled_block(g, {value}, {axis % 3})", 32)
    else:
        e.unsupported("this form")
