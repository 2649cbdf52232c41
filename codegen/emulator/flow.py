"""Control flow: basic blocks, immediate post-dominators, liveness. Knows branches, not what other instructions do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .gang import EXIT
from .ptx import Body, Instruction, Label

ENDS = frozenset({"ret", "exit"})
BRANCHES = frozenset({"bra", "brx"})


@dataclass
class Block:
    """Instructions that run one after another, and the blocks that may follow (EXIT for the end)."""

    instructions: list[tuple[int, Instruction]] = field(default_factory=list)
    successors: tuple[int, ...] = ()
    waits: bool = False
    stops: bool = False
    """Ends in trap: no way leads on."""


def build_blocks(body: Body, waits: Callable[[Instruction], bool]) -> tuple[list[Block], list[Instruction]]:
    """Blocks of a body, and all its instructions by number. An instruction for which `waits` holds is a block of its own."""
    blocks: list[Block] = [Block()]
    labels: dict[int, int] = {}
    everything: list[Instruction] = []
    for statement in body.statements:
        if isinstance(statement, Label):
            if blocks[-1].instructions:
                blocks.append(Block())
            labels[statement.number] = len(blocks) - 1
            continue
        number = len(everything)
        everything.append(statement)
        name = statement.parts[0]
        if waits(statement):
            if blocks[-1].instructions:
                blocks.append(Block())
            blocks[-1].instructions.append((number, statement))
            blocks[-1].waits = True
            blocks.append(Block())
            continue
        blocks[-1].instructions.append((number, statement))
        if name in BRANCHES or name in ENDS or name == "trap":
            blocks.append(Block())
    count = len(blocks)
    for index, block in enumerate(blocks):
        following = index + 1 if index + 1 < count else EXIT
        if not block.instructions:
            block.successors = (following,)
            continue
        last = block.instructions[-1][1]
        name = last.parts[0]
        if name in BRANCHES:
            targets = tuple(labels[label] for label in last.targets)
            block.successors = targets if last.guard is None else (*targets, following)
        elif name in ENDS:
            block.successors = (EXIT,) if last.guard is None else (EXIT, following)
        elif name == "trap" and last.guard is None:
            block.successors, block.stops = (), True
        else:
            block.successors = (following,)
    # A branch to a lone ret is an exit: its threads leave at once instead of waiting there for the others.
    ends = {index for index, block in enumerate(blocks) if _only_ends(block)}
    for block in blocks:
        block.successors = tuple(EXIT if successor in ends else successor for successor in block.successors)
    return blocks, everything


def _only_ends(block: Block) -> bool:
    if len(block.instructions) != 1:
        return False
    last = block.instructions[0][1]
    return last.parts[0] in ENDS and last.guard is None


def reachable(blocks: Sequence[Block]) -> set[int]:
    """Blocks that control flow may reach from the first."""
    found, stack = {0}, [0]
    while stack:
        for successor in blocks[stack.pop()].successors:
            if successor >= 0 and successor not in found:
                found.add(successor)
                stack.append(successor)
    return found


def post_dominators(blocks: Sequence[Block]) -> list[int]:
    """The immediate post-dominator of every block, EXIT where there is none but the end.

    A path that ends in trap does not count: threads that trap never come back, so the others need not wait for them.
    (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, on the reversed graph.)
    """
    exit_node = len(blocks)
    successors = [[exit_node if s == EXIT else s for s in block.successors] for block in blocks]
    predecessors: list[list[int]] = [[] for _ in range(exit_node + 1)]
    for index, following in enumerate(successors):
        for successor in following:
            predecessors[successor].append(index)
    order: list[int] = []
    seen = {exit_node}
    stack: list[tuple[int, int]] = [(exit_node, 0)]
    while stack:
        node, position = stack.pop()
        if position < len(predecessors[node]):
            stack.append((node, position + 1))
            following_node = predecessors[node][position]
            if following_node not in seen:
                seen.add(following_node)
                stack.append((following_node, 0))
        else:
            order.append(node)
    order.reverse()
    rank = {node: position for position, node in enumerate(order)}
    dominator: dict[int, int] = {exit_node: exit_node}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            best: int | None = None
            for successor in successors[node]:
                if successor in dominator:
                    best = successor if best is None else _common(best, successor, dominator, rank)
            if best is not None and dominator.get(node) != best:
                dominator[node] = best
                changed = True
    return [EXIT if dominator.get(index, exit_node) == exit_node else dominator[index] for index in range(len(blocks))]


def _common(a: int, b: int, dominator: dict[int, int], rank: dict[int, int]) -> int:
    while a != b:
        while rank[a] > rank[b]:
            a = dominator[a]
        while rank[b] > rank[a]:
            b = dominator[b]
    return a


def liveness(
    blocks: Sequence[Block], reads: dict[int, set[int]], writes: dict[int, set[int]]
) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """(live at entry, live at exit) of every block in `reads`: slots that somebody may still read."""
    inside = {index: set(slots) for index, slots in reads.items()}
    outside: dict[int, set[int]] = {index: set() for index in reads}
    predecessors: dict[int, list[int]] = {index: [] for index in reads}
    for index in reads:
        for successor in blocks[index].successors:
            if successor >= 0:
                predecessors[successor].append(index)
    work = sorted(reads)
    queued = set(work)
    while work:
        index = work.pop()
        queued.discard(index)
        out: set[int] = set()
        for successor in blocks[index].successors:
            if successor >= 0:
                out |= inside[successor]
        outside[index] = out
        new = reads[index] | (out - writes[index])
        if new != inside[index]:
            inside[index] = new
            for predecessor in predecessors[index]:
                if predecessor not in queued:
                    queued.add(predecessor)
                    work.append(predecessor)
    return inside, outside
