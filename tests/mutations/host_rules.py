"""Mutations of the launch: tensor maps (boxes, swizzles, sizes, strides, fill), the kernel's arguments, shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from stridewright import Gemm
from stridewright.codegen.select import SMS
from stridewright.kernels.hopper import TensorMaps
from stridewright.layout.hardware import TensorMap

from .judge import SUBJECTS
from .rules import ALL, STAGED, Mutant, Rule

Arguments = list[Any]
"""As emulate_ptx takes them: maps of A, B, D and D's tail, the pointer to D, its row stride, m, n, k, and what tiles with a shared K take: the
order's table, partial sums, counters, how many blocks are shared."""


def _same_maps(maps: TensorMaps) -> TensorMaps:
    return maps


def _same_arguments(arguments: Arguments) -> Arguments:
    return arguments


@dataclass(frozen=True)
class HostRule(Rule):
    """Other tensor maps, or other arguments. (Pattern and replacement are not used.)"""

    maps: Callable[[TensorMaps], TensorMaps] = _same_maps
    arguments: Callable[[Arguments], Arguments] = _same_arguments

    def apply(self, text: str) -> str:
        return text


class Launched(Gemm):
    """A GEMM whose launch has a fault."""

    rule: HostRule

    def tensor_maps(self, row_bytes: tuple[int, int, int] | None = None) -> TensorMaps:
        mutant = self.rule.maps(super().tensor_maps(row_bytes))
        if self.rule.maps is not _same_maps and mutant == super().tensor_maps(row_bytes):
            raise ValueError(f"{self.rule.name}: changes nothing")
        return mutant

    def emulator_arguments(self, a: Any, b: Any, d: Any, sms: int = SMS) -> Arguments:
        return self.rule.arguments(super().emulator_arguments(a, b, d, sms))


def edited(name: str, operand: str, change: Callable[[TensorMap], TensorMap], on: tuple[str, ...] = ALL) -> HostRule:
    """A rule that changes the tensor map of one operand: "a", "b", "d" or "d_tail"."""

    def maps(given: TensorMaps) -> TensorMaps:
        return replace(given, **{operand: change(getattr(given, operand))})

    return HostRule(f"{operand}: {name}", "", "", on, maps=maps)


def passed(name: str, place: int, change: Callable[[Any], Any], on: tuple[str, ...]) -> HostRule:
    """A rule that changes one argument, counted from the end."""

    def arguments(given: Arguments) -> Arguments:
        changed = list(given)
        changed[place] = type(given[place])(change(int(given[place])))
        return changed

    return HostRule(name, "", "", on, arguments=arguments)


def _loads(operand: str) -> Iterator[HostRule]:
    most = ("cooperative", "cluster", "swapped")
    yield edited("box one row lower", operand, lambda m: replace(m, box=(m.box[0], m.box[1] - 1)), most)
    yield edited("box 8 rows higher", operand, lambda m: replace(m, box=(m.box[0], m.box[1] + 8)), most)
    yield edited("box half as wide", operand, lambda m: replace(m, box=(m.box[0] // 2, m.box[1])), most)
    yield edited("box turned", operand, lambda m: replace(m, box=(m.box[0] // 2, m.box[1] * 2)), most)
    yield edited("swizzle 64B", operand, lambda m: replace(m, swizzle="64B"), most)
    yield edited("swizzle 64B of a narrow box", operand, lambda m: replace(m, swizzle="64B", box=(32, m.box[1])), most)
    yield edited("no swizzle", operand, lambda m: replace(m, swizzle="none"), most)
    yield edited("one row less", operand, lambda m: replace(m, shape=(m.shape[0], m.shape[1] - 1)), most)
    yield edited("one row more", operand, lambda m: replace(m, shape=(m.shape[0], m.shape[1] + 1)), most)
    yield edited("eight columns less", operand, lambda m: replace(m, shape=(m.shape[0] - 8, m.shape[1])), most)
    yield edited(
        "rows 16 bytes too far apart", operand, lambda m: replace(m, strides_bytes=(m.strides_bytes[0] + 16,)), most
    )
    yield edited("rows overlap", operand, lambda m: replace(m, strides_bytes=(m.strides_bytes[0] - 16,)), most)
    yield edited("every second row", operand, lambda m: replace(m, element_strides=(1, 2)), most)
    yield edited("outside is NaN", operand, lambda m: replace(m, oob_fill="nan"), most)
    yield edited("elements of 4 bytes", operand, lambda m: replace(m, dtype="f32"), ("cooperative",))


def _stores() -> Iterator[HostRule]:
    yield edited("box one row lower", "d", lambda m: replace(m, box=(m.box[0], m.box[1] - 1)), STAGED)
    yield edited("box half as wide", "d", lambda m: replace(m, box=(m.box[0] // 2, m.box[1])), STAGED)
    yield edited("swizzle 64B of a narrow box", "d", lambda m: replace(m, swizzle="64B", box=(32, m.box[1])), STAGED)
    yield edited("no swizzle", "d", lambda m: replace(m, swizzle="none"), STAGED)
    yield edited("one row less", "d", lambda m: replace(m, shape=(m.shape[0], m.shape[1] - 1)), STAGED)
    yield edited("one row more", "d", lambda m: replace(m, shape=(m.shape[0], m.shape[1] + 1)), STAGED)
    yield edited("eight columns less", "d", lambda m: replace(m, shape=(m.shape[0] - 8, m.shape[1])), STAGED)
    yield edited(
        "rows 16 bytes too far apart", "d", lambda m: replace(m, strides_bytes=(m.strides_bytes[0] + 16,)), STAGED
    )
    yield HostRule("d_tail: a whole box", "", "", ("cluster",), maps=lambda maps: replace(maps, d_tail=maps.d))
    yield HostRule("d: the tail's box", "", "", ("cluster",), maps=lambda maps: replace(maps, d=maps.d_tail))


def _arguments() -> Iterator[HostRule]:
    most = ("cooperative", "cluster", "swapped", "direct")
    yield passed("m one tile less", -7, lambda m: m - 64, most)
    yield passed("n one tile less", -6, lambda n: n - 64, most)
    yield passed("k one slot less", -5, lambda k: k - 64, most)
    yield passed("k is 0", -5, lambda k: 0, most)
    yield passed("D's rows one element further apart", -8, lambda stride: stride + 1, ("direct",))
    yield passed("m one row more", -7, lambda m: m + 1, ("direct",))
    yield passed("n one column more", -6, lambda n: n + 1, ("direct",))
    yield HostRule(
        "a and b exchanged",
        "",
        "",
        ("cooperative", "cluster"),
        arguments=lambda given: [given[1], given[0], *given[2:]],
    )
    yield HostRule("d's map for a", "", "", STAGED, arguments=lambda given: [given[2], *given[1:]])


HOST_RULES: tuple[HostRule, ...] = (*_loads("a"), *_loads("b"), *_stores(), *_arguments())


def host_mutants() -> Iterator[Mutant]:
    """Every rule on every subject it is for."""
    for rule in HOST_RULES:
        for name in rule.on:
            yield Mutant(SUBJECTS[name], rule, "launch")
