"""What a Gemm is asked for: whether it is more than a plain product, and what a family of kernels has not."""

from __future__ import annotations

from typing import Any

import numpy as np

from stridewright.kernels.config import ConfigError, GemmConfig, Violation


def _beyond_plain(given: dict[str, Any], config: GemmConfig | None) -> bool:
    """Whether these arguments ask for more than one bf16 product of K-major operands with whole 16 bytes a row."""
    if any(given.get(name, "bf16") != "bf16" for name in "abd"):
        return True
    if given.get("a_major", "k") != "k" or given.get("b_major", "k") != "k":
        return True
    if any(name in given for name in _BEYOND):
        return True
    sizes = [given.get(name) for name in "mnk"]
    if any(isinstance(size, int | np.integer) and not isinstance(size, bool) and size == 0 for size in sizes):
        return True
    k = sizes[2]
    if isinstance(k, int | np.integer) and not isinstance(k, bool) and k > 0 and k % 8:
        return True
    return isinstance(config, GemmConfig) and (config.fusion.uses_terms or config.pipeline.promote > 0)


_BEYOND = ("activation", "gated", "expression", "promote", "batch", "groups", "group_by", "relayout", "fusion")


def _refuse_beyond(given: dict[str, Any], arch: str) -> None:
    neutral = {"activation": "none", "gated": False, "expression": "", "group_by": "m", "relayout": "refuse"}
    found = [
        Violation(
            parameter=name,
            value=repr(value) if isinstance(value, str | int | float) else "given",
            rule=f"this epilogue has no kernel for {arch} yet",
            fix="arch='sm_90a' has it; the kernels here compute a @ b.T: scale or add afterwards",
        )
        for name, value in given.items()
        if _differs(value, neutral.get(name))
    ]
    if found:
        raise ConfigError(tuple(found))


def _differs(value: Any, neutral: Any) -> bool:
    """Whether something is asked for: an array always asks, whatever it compares to."""
    plain = value is None or isinstance(value, str | int | float | np.generic)
    return bool(value != neutral) if plain else True


def in_order(config: GemmConfig, deterministic: bool, given: bool) -> GemmConfig:
    """The configuration whose partial sums are added in a fixed order, if that is asked for. Raises ConfigError where the
    caller gave one that adds them in the order in which they come.

    >>> in_order(GemmConfig().replace(split_kind="split", parts=2, reduce="atomic"), True, given=False).split.reduce
    'ordered'
    """
    if not deterministic or config.split.reduce == "ordered" or config.split.kind == "none":
        return config
    if given:
        rule = "adds partial sums in the order in which they come, and deterministic=True asks for one order"
        raise ConfigError((Violation(parameter="reduce", value="'atomic'", rule=rule, fix="reduce='ordered'"),))
    return config.replace(reduce="ordered")


def _missing_sizes(sizes: dict[str, Any]) -> list[Violation]:
    return [
        Violation(parameter=name, value=None, rule="must be given, a whole number of elements")
        for name, size in sizes.items()
        if size is None
    ]
