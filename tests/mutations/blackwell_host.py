"""Mutations of a Blackwell launch: tensor maps (boxes, swizzles, sizes, strides, fill), and the kernel's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stridewright.codegen.blackwell_gemm import BlackwellGemm
from stridewright.kernels.hopper import TensorMaps

from .host_rules import HostRule, edited, passed
from .judge import Subject
from .rules import Mutant

EVERY = ("static", "pair", "multicast")
STAGED = ("static", "pair")


class LaunchedBlackwell(BlackwellGemm):
    """A GEMM whose launch has a fault."""

    rule: HostRule

    def tensor_maps(self, row_bytes: tuple[int, int, int] | None = None) -> TensorMaps:
        return self.rule.maps(super().tensor_maps(row_bytes))

    def emulator_arguments(self, a: Any, b: Any, d: Any, sms: int = 1) -> list[Any]:
        return self.rule.arguments(super().emulator_arguments(a, b, d, sms))


def _loads(operand: str) -> Iterator[HostRule]:
    yield edited("box one row lower", operand, lambda m: replace(m, box=(m.box[0], m.box[1] - 1)), EVERY)
    yield edited("box 8 rows higher", operand, lambda m: replace(m, box=(m.box[0], m.box[1] + 8)), EVERY)
    yield edited("box half as wide", operand, lambda m: replace(m, box=(m.box[0] // 2, m.box[1])), EVERY)
    yield edited("swizzle 64B", operand, lambda m: replace(m, swizzle="64B", box=(32, m.box[1] * 2)), EVERY)
    yield edited("no swizzle", operand, lambda m: replace(m, swizzle="none"), EVERY)
    yield edited("one row less", operand, lambda m: replace(m, shape=(m.shape[0], m.shape[1] - 1)), EVERY)
    yield edited("eight columns less", operand, lambda m: replace(m, shape=(m.shape[0] - 8, m.shape[1])), EVERY)
    yield edited(
        "rows 16 bytes too far apart", operand, lambda m: replace(m, strides_bytes=(m.strides_bytes[0] + 16,)), EVERY
    )
    yield edited("every second row", operand, lambda m: replace(m, element_strides=(1, 2)), EVERY)
    yield edited("outside is NaN", operand, lambda m: replace(m, oob_fill="nan"), EVERY)


def _others() -> Iterator[HostRule]:
    yield edited("box one row lower", "d", lambda m: replace(m, box=(m.box[0], m.box[1] - 1)), STAGED)
    yield edited("no swizzle", "d", lambda m: replace(m, swizzle="none"), STAGED)
    yield edited("one row less", "d", lambda m: replace(m, shape=(m.shape[0], m.shape[1] - 1)), STAGED)
    yield edited("one row more", "d", lambda m: replace(m, shape=(m.shape[0], m.shape[1] + 1)), STAGED)
    yield HostRule("d_tail: a whole box", "", "", STAGED, maps=lambda maps: replace(maps, d_tail=maps.d))
    yield passed("m one tile less", -3, lambda m: m - 256, EVERY)
    yield passed("n one tile less", -2, lambda n: n - 128, EVERY)
    yield passed("k one slot less", -1, lambda k: k - 64, EVERY)
    yield passed("k is 0", -1, lambda k: 0, EVERY)
    yield HostRule("a and b exchanged", "", "", EVERY, arguments=lambda given: [given[1], given[0], *given[2:]])
    yield HostRule("d's map for a", "", "", STAGED, arguments=lambda given: [given[2], *given[1:]])


HOST_RULES: tuple[HostRule, ...] = (*_loads("a"), *_loads("b"), *_others())


def launched(subject: Subject, rule: HostRule) -> LaunchedBlackwell:
    """The subject's GEMM with that fault."""
    gemm = LaunchedBlackwell(*subject.shape, config=subject.config)
    gemm.rule = rule
    return gemm


def host_mutants(subjects: dict[str, Subject]) -> Iterator[Mutant]:
    """Every rule on every subject it is for."""
    for rule in HOST_RULES:
        for name in rule.on:
            yield Mutant(subjects[name], rule, "launch")
