"""What a Gemm is asked for: whether it is more than a plain product, and what a family of kernels has not."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stridewright.kernels.config import ConfigError, GemmConfig, Violation
from stridewright.kernels.fusion import Fusion

from .bind import OperandError


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


_SAID_BY_ARRAYS = {
    "batch": "three dimensions are a batch: a (B, M, K), and b (B, N, K) or (N, K)",
    "a_major": "the strides of a say it: a.T of an array (K, M) is MN-major",
    "b_major": "the strides of b say it: b.T of an array (K, N) is MN-major",
    "m": "the shape of a says it, (M, K)",
    "n": "the shape of b says it, (N, K)",
    "k": "the shapes of a and b say it, (M, K) and (N, K)",
    "a": "the dtype of a says it, or a_format of bytes",
    "b": "the dtype of b says it, or b_format of bytes",
    "config": "Gemm(m, n, k, config=...) takes one",
    "fusion": "Gemm(m, n, k, fusion=...) takes one",
}
_OTHER_NAMES = {
    "act": "activation",
    "out_dtype": "d",
    "dtype": "d",
    "offs": "offsets",
    "c_scale": "beta",
    "allow_tf32": "tf32",
}


def no_such(unknown: Iterable[str], known: Sequence[str], by_arrays: bool = False) -> str:
    """What is to be said of arguments that there are not: the nearest one, and all that there are. ``by_arrays``: whether sizes,
    formats and majors are those of the arrays.

    >>> no_such(["activaton"], ["activation", "bias"])
    'activaton: no such argument; activation is near; there are activation, bias'
    """
    parts = []
    for name in sorted(unknown):
        meant = _OTHER_NAMES.get(name)
        near = [meant] if meant in known else difflib.get_close_matches(name, known, 1, 0.7)
        said = _SAID_BY_ARRAYS.get(name, "") if by_arrays else ""
        parts.append(f"{name}: no such argument" + (f"; {said}" if said else f"; {near[0]} is near" if near else ""))
    return f"{'; '.join(parts)}; there are {', '.join(known)}"


_LARGEST = float(np.finfo(np.float32).max)


def require_number(name: str, value: object) -> None:
    """Raises OperandError for a number that is no float32: True, or one that is too large. Arrays and infinities may be given.

    >>> require_number("alpha", 2.0)
    >>> require_number("alpha", 1e40)
    Traceback (most recent call last):
    stridewright.codegen.bind.OperandError: alpha: 1e+40 was given, and it is a float32, from -3.4028235e+38 to 3.4028235e+38; nearest 3.4028235e+38
    """
    if isinstance(value, bool | np.bool_):
        raise OperandError(f"{name}: {value!r} was given, and it is a number: {name}={float(value)}")
    if not isinstance(value, int | float | np.integer | np.floating):
        return
    try:
        number = float(value)
    except OverflowError:  # of a whole number beyond float64
        number = math.inf if value > 0 else -math.inf
    else:
        if math.isinf(number) or not abs(number) > _LARGEST:
            return
    nearest = math.copysign(_LARGEST, number)
    words = f"{number:g}" if math.isfinite(number) else f"a number of {len(f'{value:x}') * 4} bits"
    raise OperandError(
        f"{name}: {words} was given, and it is a float32, from {-_LARGEST:.8g} to {_LARGEST:.8g}; nearest {nearest:.8g}"
    )


def require_product(alpha: float) -> None:
    """Raises OperandError where alpha times the scales of whole tensors is no float32, though each of them is."""
    if abs(alpha) > _LARGEST and not math.isinf(alpha):
        raise OperandError(
            f"alpha, scale_a, scale_b: they are {alpha:g} together, and float32 ends at {_LARGEST:.8g}; "
            "scales of rows are multiplied in one after the other"
        )


def require_options(promote: object, fusion: object) -> None:
    """Raises ConfigError for a promote that is no number of elements of K, and for a fusion that is none."""
    found = []
    whole = isinstance(promote, int | np.integer) and not isinstance(promote, bool)
    if promote is not None and not whole:
        rule, fix = "must be a whole number of elements of K", "promote=128, or 0 for never"
        found.append(Violation(parameter="promote", value=repr(promote), rule=rule, fix=fix))
    if fusion is not None and not isinstance(fusion, Fusion):
        found.append(
            Violation(parameter="fusion", value=repr(fusion), rule="must be a Fusion", fix='Fusion(bias="n") makes one')
        )
    if found:
        raise ConfigError(tuple(found))
