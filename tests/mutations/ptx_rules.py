"""Mutations of the PTX: each synchronising instruction, copy and multiply, wherever the compiler has put it (loops are unrolled and peeled there,
so one line of the source can stand for several instructions), left out, done twice, done later than the next one, or with a looser count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .judge import Subject
from .rules import Mutant, Rule

LOAD = "cp.async.bulk.tensor.2d.shared::cluster"
STORE = "cp.async.bulk.tensor.2d.global"
OPCODES = (
    "bar.sync",
    "bar.arrive",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
    "fence.proxy.async",
    "fence.mbarrier_init",
    "mbarrier.init",
    "mbarrier.arrive.expect_tx",
    "mbarrier.arrive",
    "mbarrier.try_wait",
    "setmaxnreg",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "wgmma.mma_async",
    LOAD,
    STORE,
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "stmatrix",
    "tcgen05.alloc",
    "tcgen05.dealloc",
    "tcgen05.relinquish_alloc_permit",
    "tcgen05.fence::before_thread_sync",
    "tcgen05.fence::after_thread_sync",
    "tcgen05.commit",
    "tcgen05.mma",
    "tcgen05.ld",
    "tcgen05.wait::ld",
    "clusterlaunchcontrol.try_cancel",
)
"""What is mutated; of two that fit an instruction, the first counts."""

TWICE = (
    "mbarrier.init",
    "mbarrier.arrive.expect_tx",
    "mbarrier.arrive",
    "wgmma.mma_async",
    LOAD,
    "bar.arrive",
    "tcgen05.alloc",
    "tcgen05.dealloc",
    "tcgen05.commit",
    "tcgen05.mma",
    "clusterlaunchcontrol.try_cancel",
)
"""Instructions of which a second one is a fault. (A second fence, wait or commit only waits for more, a second store stores the same.)"""

EVERY = {
    "wgmma.mma_async": 5,
    "stmatrix": 3,
    "wgmma.fence": 3,
    "tcgen05.mma": 5,
    "tcgen05.ld": 2,
    "tcgen05.wait::ld": 2,
}
"""Of instructions that come in rows, one in so many."""

_OPCODE = re.compile(r"^\s*(?:@!?%\w+\s+)?(" + "|".join(map(re.escape, OPCODES)) + r")\b")
_BREAK = re.compile(r"^\s*(?:@!?%\w+\s+)?(?:bra|ret|exit|trap)\b|^\s*\$?[\w$]+:")


@dataclass(frozen=True)
class Item:
    """Lines [first, last] of the text that stay together: a statement, or a block of inline assembly in braces."""

    first: int
    last: int
    opcode: str
    at: tuple[int, int]
    """The lines of the instruction itself."""
    breaks: bool


def items(lines: list[str]) -> list[Item]:
    """The statements of the kernel's body."""
    start = next(i for i, line in enumerate(lines) if line.strip() == "{") + 1
    found = []
    i = start
    while i < len(lines) and lines[i].strip() != "}":
        last = i
        if lines[i].strip() == "{":
            while lines[last].strip() != "}":
                last += 1
        opcode, at = "", (i, i)
        for j in range(i, last + 1):
            match = _OPCODE.match(lines[j])
            if match:
                end = j
                while ";" not in lines[end]:
                    end += 1
                last = max(last, end)
                opcode, at = match[1], (j, end)
                break
        found.append(Item(i, last, opcode, at, not opcode and bool(_BREAK.match(lines[i]))))
        i = last + 1
    return found


@dataclass(frozen=True)
class PtxRule(Rule):
    """``operator`` on the ``nth`` instruction (from 0) of an opcode. (The pattern is the opcode, and the replacement is not used.)"""

    operator: str = "drop"

    def apply(self, text: str) -> str:
        lines = text.splitlines()
        found = items(lines)
        places = [i for i, item in enumerate(found) if item.opcode == self.pattern]
        if len(places) != self.count:
            raise ValueError(f"{self.name}: there are {len(places)} of {self.pattern}, not {self.count}")
        item = found[places[self.nth]]
        first, last = item.at
        if self.operator == "drop":
            # A wait that is left out still says that it is done.
            lines[first : last + 1] = ["setp.eq.b32 done, 0, 0;"] if self.pattern == "mbarrier.try_wait" else []
        elif self.operator == "twice":
            lines[first : last + 1] = 2 * lines[first : last + 1]
        elif self.operator == "looser":
            lines[first] = re.sub(r"(\d+);", lambda match: f"{int(match[1]) + 1};", lines[first])
        else:
            other = found[_next(found, places[self.nth])]
            moved = lines[item.first : item.last + 1]
            lines[item.first : other.last + 1] = [*lines[item.last + 1 : other.last + 1], *moved]
        return "\n".join(lines) + "\n"


def _next(found: list[Item], place: int) -> int:
    """The next instruction of interest that is always executed after this one; -1 if code branches before."""
    for i in range(place + 1, len(found)):
        if found[i].breaks:
            return -1
        if found[i].opcode:
            return i
    return -1


def ptx_rules(text: str) -> Iterator[PtxRule]:
    """Every operator on every instruction that it is for."""
    found = items(text.splitlines())
    counts = Counter(item.opcode for item in found)
    seen: Counter[str] = Counter()
    for place, item in enumerate(found):
        opcode = item.opcode
        if not opcode:
            continue
        nth, count = seen[opcode], counts[opcode]
        seen[opcode] += 1
        if nth % EVERY.get(opcode, 1):
            continue
        operators = ["drop"]
        if opcode in TWICE:
            operators.append("twice")
        if opcode.endswith("wait_group"):
            operators.append("looser")
        if opcode != "mbarrier.try_wait" and _matters(found, place):
            operators.append("later")
        for operator in operators:
            yield PtxRule(f"{operator} {opcode} #{nth + 1}", opcode, "", (), nth, count, operator)


def _matters(found: list[Item], place: int) -> bool:
    """Whether there is something to move behind, of another kind: the order of two equals is no matter."""
    other = _next(found, place)
    return other >= 0 and found[other].opcode != found[place].opcode


def ptx_mutants(subject: Subject, text: str) -> Iterator[Mutant]:
    """The mutants of a subject's PTX."""
    for rule in ptx_rules(text):
        yield Mutant(subject, rule, "ptx")
