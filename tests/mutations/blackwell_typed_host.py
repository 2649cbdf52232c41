"""Mutations of the launch of block-scaled and typed Blackwell kernels: tensor maps of padded and MN-major operands and of factors, and how factors and packed elements lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stridewright import Gemm
from stridewright.layout.hardware import TensorMap

from .host_rules import HostRule

SCALED = ("nvfp4", "mxfp8", "mxfp4-pair", "mixed")
PACKED = ("padded", "sixes")


def _same(tensor_map: TensorMap) -> TensorMap:
    return tensor_map


def _as_given(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class TypedHostRule(HostRule):
    """Another tensor map of an operand or of factors ("a", "b", "scale_a", "scale_b"), or other bytes of one."""

    operand: str = ""
    change: Callable[[TensorMap], TensorMap] = _same
    bytes_of: Callable[[Any], Any] = _as_given

    def changed(self, name: str, tensor_map: TensorMap) -> TensorMap:
        """The map that the launch passes. Raises ValueError if the rule changes nothing."""
        if name != self.operand or self.change is _same:
            return tensor_map
        mutant = self.change(tensor_map)
        if mutant == tensor_map:
            raise ValueError(f"{self.name}: changes nothing")
        return mutant


class _Launched:
    """What a launch with a fault does otherwise; mixed into the class of a GEMM."""

    rule: TypedHostRule
    changes: int = 0
    """How often the rule was applied."""

    def _changed(self, name: str, tensor_map: TensorMap) -> TensorMap:
        self.changes += name == self.rule.operand
        return self.rule.changed(name, tensor_map)

    def maps_for(self, a: Any, b: Any, d: Any) -> Any:
        maps = super().maps_for(a, b, d)  # type: ignore[misc]
        return replace(maps, a=self._changed("a", maps.a), b=self._changed("b", maps.b))

    def tensor_maps(self, row_bytes: tuple[int, int, int] | None = None) -> Any:
        maps = super().tensor_maps(row_bytes)  # type: ignore[misc]
        return replace(maps, a=self._changed("a", maps.a), b=self._changed("b", maps.b))

    def arguments_beside(self, given: Any, encoded: Callable[[TensorMap, Any], Any]) -> list[Any]:
        names = iter(("scale_a", "scale_b"))
        made: list[Any] = super().arguments_beside(given, lambda m, t: encoded(self._changed(next(names), m), t))  # type: ignore[misc]
        self.changes += self.rule.operand == "exchanged"
        return made[::-1] if self.rule.operand == "exchanged" else made

    def emulate(self, a: Any, b: Any, **options: Any) -> Any:
        if self.rule.bytes_of is not _as_given:
            whole = {"a": a.data, "b": b.data, "scale_a": a.scales, "scale_b": b.scales}
            was = np.asarray(whole[self.rule.operand]).view(np.uint8)
            changed = np.ascontiguousarray(self.rule.bytes_of(was.copy())).reshape(was.shape)
            if np.array_equal(changed, was):
                raise ValueError(f"{self.rule.name}: changes nothing")
            self.changes += 1
            whole[self.rule.operand] = changed
            a, b = whole.pop("a"), whole.pop("b")
            options |= whole
        emulation = super().emulate(a, b, **options)  # type: ignore[misc]
        if not self.changes:
            raise ValueError(f"{self.rule.name}: was not applied")
        return emulation


def launched(gemm: Gemm, rule: HostRule) -> Gemm:
    """This GEMM with that fault."""
    faulty: Any = gemm
    faulty.__class__ = type("Launched", (_Launched, type(gemm)), {"rule": rule})
    return gemm


def _map(name: str, operand: str, on: tuple[str, ...], change: Callable[[TensorMap], TensorMap]) -> TypedHostRule:
    return TypedHostRule(f"{operand}: {name}", "", "", on, operand=operand, change=change)


def _bytes(name: str, operand: str, on: tuple[str, ...], bytes_of: Callable[[Any], Any]) -> TypedHostRule:
    return TypedHostRule(f"{operand}: {name}", "", "", on, operand=operand, bytes_of=bytes_of)


def _atoms(scales: Any) -> Any:
    """(blocks of 128 rows, atoms along K, 32 rows, 4 quarters, 4 factors)."""
    return scales.reshape(*scales.shape[:2], 32, 4, 4) if scales.ndim == 5 else scales


def _row_by_row(scales: Any) -> Any:
    """Atoms of 128 rows that lie one after another, 4 bytes each."""
    return _atoms(scales).transpose(0, 1, 3, 2, 4)


TYPED_HOST_RULES: tuple[TypedHostRule, ...] = (
    _map("a box of one atom less along K", "scale_a", ("nvfp4", "mxfp4-pair"), lambda m: replace(m, box=(m.box[0], m.box[1] - 1, m.box[2]))),
    _map("a box of one atom less along the rows", "scale_b", ("nvfp4", "mxfp4-pair"), lambda m: replace(m, box=(m.box[0], m.box[1], m.box[2] - 1))),
    _map("a box of one atom more", "scale_a", SCALED, lambda m: replace(m, box=(m.box[0], m.box[1], m.box[2] + 1))),
    _map("a box of half an atom", "scale_b", SCALED, lambda m: replace(m, box=(m.box[0] // 2, *m.box[1:]))),
    _map("an atom less along K", "scale_a", SCALED, lambda m: replace(m, shape=(m.shape[0], m.shape[1] - 1, m.shape[2]))),
    _map("an atom less along the rows", "scale_b", SCALED, lambda m: replace(m, shape=(*m.shape[:2], m.shape[2] - 1))),
    _map("blocks of rows 512 bytes too close", "scale_b", SCALED, lambda m: replace(m, strides_bytes=(m.strides_bytes[0], m.strides_bytes[1] - 512))),
    _map("atoms 1024 bytes apart", "scale_a", SCALED, lambda m: replace(m, strides_bytes=(1024, m.strides_bytes[1]))),
    _map("every second atom", "scale_a", ("nvfp4", "mxfp4-pair"), lambda m: replace(m, element_strides=(1, 2, 1))),
    TypedHostRule("the factors' maps exchanged", "", "", SCALED, operand="exchanged"),
    _bytes("atoms row by row, not in quarters", "scale_a", SCALED, _row_by_row),
    _bytes("atoms row by row, not in quarters", "scale_b", SCALED, _row_by_row),
    _bytes("rows of blocks before atoms of K", "scale_a", SCALED, lambda s: s.transpose(1, 0, 2, 3, 4)),
    _bytes("the four factors of a word backwards", "scale_b", SCALED, lambda s: s[..., ::-1]),
    _bytes("quarters in another order", "scale_b", ("mxfp8", "nvfp4"), lambda s: s[..., ::-1, :]),
    _bytes("the two elements of a byte exchanged", "a", ("nvfp4", "mxfp4-pair"), lambda x: x << 4 | x >> 4),
    _bytes("the two elements of a byte exchanged", "b", ("nvfp4", "mixed"), lambda x: x << 4 | x >> 4),
    _map("packed without padding (16U4_ALIGN8B)", "b", ("padded", "mixed"), lambda m: replace(m, dtype="16U4_ALIGN8B")),
    _map("packed without padding (16U4_ALIGN8B)", "a", ("nvfp4", "mxfp4-pair"), lambda m: replace(m, dtype="16U4_ALIGN16B")),
    _map("6 bits for 4", "b", ("padded",), lambda m: replace(m, dtype="16U6_ALIGN16B", strides_bytes=(m.strides_bytes[0] * 3 // 2,))),
    _map("bytes for packed rows", "b", ("padded", "mixed"), lambda m: replace(m, dtype="u8", shape=(m.shape[0] // 2, m.shape[1]))),
    _map("4 bits for 6", "a", ("sixes",), lambda m: replace(m, dtype="16U4_ALIGN16B")),
    _map("no swizzle", "b", PACKED, lambda m: replace(m, swizzle="none")),
    _map("box one row lower", "b", PACKED, lambda m: replace(m, box=(m.box[0], m.box[1] - 1))),
    _map("128 columns less", "a", PACKED, lambda m: replace(m, shape=(m.shape[0] - 128, m.shape[1]))),
    _map("rows 32 bytes too far apart", "a", ("sixes",), lambda m: replace(m, strides_bytes=(m.strides_bytes[0] + 32,))),
    _map("swizzle 128B", "a", ("tf32",), lambda m: replace(m, swizzle="128B")),
    _map("box half as wide", "b", ("tf32",), lambda m: replace(m, box=(m.box[0] // 2, m.box[1]))),
    _map("box one row of K lower", "a", ("tf32",), lambda m: replace(m, box=(m.box[0], m.box[1] - 1))),
    _map("bytes outside are NaN", "a", ("tf32",), lambda m: replace(m, oob_fill="nan")),
    _map("box 8 rows higher", "a", ("whole", "stationary"), lambda m: replace(m, box=(m.box[0], m.box[1] + 8))),
    _map("16 columns less", "b", ("whole", "stationary"), lambda m: replace(m, shape=(m.shape[0] - 16, m.shape[1]))),
)  # fmt: skip
