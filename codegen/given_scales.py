"""Scales of A and of B, told apart by their shapes: one number, one for each row, or one for each block of 128 of K (and, of
B, of 128 rows).

A shape alone does not always tell. Scales of blocks are both operands' or neither's, so that one's may tell of the other's;
where that leaves both readings, ``promote`` decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from stridewright.kernels.fusion import BLOCK_K

from .bind import OperandError


@dataclass(frozen=True)
class Scales:
    """The scales that one operand was given: ``shape`` is their array's, ``vectors`` the shapes of one for each row."""

    name: str
    shape: tuple[int, ...]
    rows: int
    blocks: tuple[int, int]
    vectors: frozenset[tuple[int, ...]]
    batches: int
    several: bool
    """Whether the GEMM is of several matrices."""

    @property
    def is_number(self) -> bool:
        """Whether they may be one number."""
        return all(size == 1 for size in self.shape)

    @property
    def by_row(self) -> bool:
        """Whether they may be one number or one for each row."""
        return self.is_number or self.shape in self.vectors

    @property
    def by_block(self) -> bool:
        """Whether they may be one for each block, of all matrices or of each."""
        return self.shape in (self.blocks, (self.batches, *self.blocks))

    def require_fit(self) -> None:
        """Raises OperandError for a shape that is none of these."""
        if self.by_row or self.by_block:
            return
        turned = len(self.shape) >= 2 and self.shape[-2:] == self.blocks[::-1] != self.blocks
        each = (
            f"; with {self.batches} before either for each of {self.batches} matrices, ({self.batches}, {self.rows}) or "
            f"{(self.batches, *self.blocks)}"
        )
        raise OperandError(
            f"{self.name}: shape {self.shape}; there is one number, ({self.rows},) for each row, or {self.blocks} for blocks of {BLOCK_K}"
            + (each if self.several else "")
            + (f" (this is the transpose of that: {self.name}.T)" if turned else "")
        )


def are_blocks(found: dict[str, Scales], promote: int, blocks_of: dict[str, tuple[int, int]]) -> bool:
    """Whether the scales given, by name, are those of blocks, whose shapes are ``blocks_of``. Raises OperandError where they go
    together neither way, or both ways and mean different things.

    >>> a = Scales("scale_a", (8,), 8, (8, 4), frozenset({(8,)}), 1, False)
    >>> b = Scales("scale_b", (1, 4), 4, (1, 4), frozenset({(4,), (1, 4)}), 1, False)
    >>> are_blocks({"scale_a": a, "scale_b": b}, 0, {"scale_a": (8, 4), "scale_b": (1, 4)})
    False
    """
    for one in found.values():
        one.require_fit()
    rows = all(one.by_row for one in found.values())
    blocks = len(found) == 2 and all(one.by_block for one in found.values())
    if rows and blocks:
        if promote == BLOCK_K:
            return True
        # Of a single block of K either gives the same sums but for where they are rounded.
        if all(one.blocks[1] == 1 for one in found.values()):
            return False
        words = " and ".join(f"{name} {one.shape}" for name, one in found.items())
        columns = " and ".join(
            f"{name} {(one.batches, one.rows, 1) if one.several else (one.rows, 1)}" for name, one in found.items()
        )
        raise OperandError(
            f"{words} may be scales of rows or of blocks of {BLOCK_K}: Gemm(..., promote={BLOCK_K}) says blocks; of rows "
            f"they are as columns: {columns}"
        )
    if not rows and not blocks:
        _refuse_mixture(found, blocks_of)
    return blocks


def _refuse_mixture(found: dict[str, Scales], blocks: dict[str, tuple[int, int]]) -> None:
    """Raises OperandError for scales of blocks of which only one operand has some."""
    one = next(one for one in found.values() if not one.by_row)
    other = "scale_b" if one.name == "scale_a" else "scale_a"
    has = f"{other}'s shape {found[other].shape} is not" if other in found else f"{other} is one number or not given"
    raise OperandError(
        f"{one.name}: shape {one.shape} is one for each block of {BLOCK_K} of K, and {has}; scales of blocks are both operands': "
        f"give {other} of shape {blocks[other]}, or {one.name} of shape ({one.rows},), one for each row"
    )
