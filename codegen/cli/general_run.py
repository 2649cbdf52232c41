"""What ``stridewright gemm`` does beyond one plain bf16 product: draws what the options ask for, runs it, checks it.

Options are one GEMM's; arrays and reference are those of the breadth tests (codegen/breadth.py).
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.codegen.breadth import Arrays, Case, Recipe, make, reference, written_by
from stridewright.codegen.check import Check
from stridewright.kernels.fusion import Fusion

if TYPE_CHECKING:
    from stridewright.codegen.general import GeneralGemm

RESULTS = {"bf16": "bf16", "f16": "f16", "tf32": "f32", "s8": "s32", "u8": "s32"}
"""The format of D where it is not given, by that of A; else it is bf16."""


def result_of(a: str, b: str) -> str:
    """The format of D where it is not given: that of 16-bit operands, f32 of tf32, s32 of integers, bf16 of smaller floats.

    >>> result_of("e4m3", "e5m2"), result_of("s8", "u8"), result_of("s8", "f16")
    ('bf16', 's32', 'f16')
    """
    return b if b in ("bf16", "f16") else RESULTS.get(a, "bf16")


_FIRST_INFINITE = {"bf16": (2 - 2.0**-8) * 2.0**127, "f16": 65520.0, "f32": (2 - 2.0**-24) * 2.0**127}
"""What rounds to an infinity in the formats that have them and do not saturate."""


@dataclass(frozen=True)
class Options:
    """The command line's: see ``stridewright gemm --help``."""

    activation: str = "none"
    gated: bool = False
    expression: str = ""
    bias: str = ""
    c: bool = False
    alpha: bool = False
    scales: str = ""
    aux: bool = False
    amax: bool = False
    promote: int | None = None
    batch: int | None = None
    groups: int | None = None
    group_by: str = "m"
    relayout: str = "refuse"

    def of_the_gemm(self) -> dict[str, Any]:
        """The keywords of ``Gemm``, those that differ from its defaults."""
        names = ("activation", "gated", "expression", "promote", "batch", "groups", "group_by", "relayout")
        plain = Options()
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(plain, name)}

    @property
    def asks_for_more(self) -> bool:
        """Whether a plain product is not enough."""
        return self != Options()

    def fusion(self, gemm: GeneralGemm) -> Fusion:
        """What the drawn arrays ask for."""
        kinds = {"": ("", ""), "row": ("row", "row"), "block": ("block", "block")}
        if self.scales not in kinds:
            raise ValueError(f"--scales {self.scales}: must be row or block")
        if self.bias not in ("", "n", "m"):
            raise ValueError(f"--bias {self.bias}: must be n (one for each column) or m (one for each row)")
        if self.groups == 0:
            raise ValueError("--groups 0: without a group nothing is written, and there is nothing to check")
        scale_a, scale_b = kinds[self.scales]
        return dataclasses.replace(
            gemm.config.fusion,
            alpha=self.alpha,
            c="f32" if self.c else "",
            bias=self.bias,
            aux=self.aux,
            amax=self.amax,
            scale_a=scale_a,  # type: ignore[arg-type]
            scale_b=scale_b,  # type: ignore[arg-type]
        )


def draw(gemm: GeneralGemm, options: Options, values: str, seed: int) -> tuple[Case, Arrays]:
    """The arrays of a GEMM, and the case that knows their reference."""
    a_major, b_major = getattr(gemm, "asked_majors", (gemm.problem.a_major, gemm.problem.b_major))
    problem = dataclasses.replace(gemm.problem, a_major=a_major, b_major=b_major)
    # Drawn as the caller's arrays are said to lie, from which the kernel may read a copy.
    config = gemm.config.replace(fusion=options.fusion(gemm), problem=problem)
    shared = (False, False)
    case = Case(Recipe(config), gemm.m, gemm.n, gemm.k, gemm.batches, seed, values == "integers", (0, 0, 0), shared)
    return case, make(case)


def run(
    gemm: GeneralGemm,
    options: Options,
    where: str,
    values: str,
    seed: int,
    drawn: tuple[Case, Arrays] | None = None,
) -> dict[str, Any]:
    """Runs and checks: the fields of the report that differ from a plain run's, ``check`` among them. ``drawn`` is what
    ``draw`` gave, where it was called already.
    """
    case, arrays = drawn or draw(gemm, options, values, seed)
    found: dict[str, Any] = {"races": [], "conflicts": [], "instructions": None, "seconds": {}, "amax": None}
    start = time.perf_counter()
    if where == "emulator":
        emulation = gemm.emulate(arrays.a, arrays.b, **arrays.others)
        d = emulation.d
        if emulation.result is not None:
            found |= {"races": list(emulation.races), "conflicts": list(emulation.conflicts)}
            found["instructions"] = emulation.result.instructions
        written = arrays.others
    else:
        d, written = written_by(gemm, arrays)
    found["seconds"]["run"] = time.perf_counter() - start
    should = reference(case, arrays, 2.0**-13 if gemm.problem.a in ("e4m3", "e5m2") and where == "gpu" else 2.0**-23)
    found["check"] = checked(d, should.d, should.allowed, gemm.problem.d)
    for name, value, allowed in (("aux", should.x, should.x_allowed),):
        if name in written:
            beside = checked(written[name], value, allowed, gemm.problem.d)
            if not beside.passed:
                found["check"] = dataclasses.replace(beside, worst=f"{name}: {beside.worst}")
    if "amax" in written:
        found["amax"] = float(written["amax"][0])
        apart = float(np.max(should.allowed, where=np.isfinite(should.d), initial=0.0))
        words = wrong_amax(found["amax"], should.amax, apart)
        if words and found["check"].passed:
            found["check"] = dataclasses.replace(found["check"], outside=1, worst=words)
    return found


def wrong_amax(amax: float, wanted: float, allowed: float) -> str:
    """What is wrong with the largest |D|, "" if nothing; ``allowed`` is the greatest bound of an element of D.

    >>> wrong_amax(2.0, 2.0, 1e-6), wrong_amax(1.5, 2.0, 1e-6)
    ('', 'amax is 1.5, and the largest |D| is 2 in float64')
    """
    # The largest of numbers and of what has no value is not said to be any.
    if amax == wanted or math.isnan(wanted):
        return ""
    # amax is of the float32 values before they are rounded to D's format; allowed counts that rounding, too.
    most = 1e-3 * max(wanted, 1.0) if math.isfinite(wanted) else 0.0
    if abs(amax - wanted) <= most + 4 * allowed:
        return ""
    return f"amax is {amax:.8g}, and the largest |D| is {wanted:.8g} in float64"


def checked(d: Any, value: Any, allowed: Any, dtype: str) -> Check:
    """The comparison as a plain run reports it."""
    from stridewright.codegen.reference import widened

    raw = d.view(np.uint8) if dtype in ("e4m3", "e5m2") and d.dtype != np.uint8 else d
    got = widened(raw, dtype if dtype in ("e4m3", "e5m2") else "f64")
    if not value.size:
        return Check(0.0, 0.0, 0, 0, "")
    with np.errstate(all="ignore"):
        difference = np.abs(got - value)
        right = (difference <= allowed) & np.isfinite(value)
        # An infinity, or what has no value as the root of a negative sum, must be the same here; what is beyond the format's
        # numbers is infinite in it.
        right |= (got == value) | (np.isnan(got) & np.isnan(value))
        beyond = np.abs(value) + allowed >= _FIRST_INFINITE.get(dtype, np.inf)
        right |= np.isfinite(value) & beyond & (got == np.copysign(np.inf, value))
        # Integers have no number for what has no value: 0 (PTX ISA, cvt).
        right |= np.isnan(value) & (got == 0) & (dtype in ("s8", "s32"))
        wrong = ~(right | (np.isinf(allowed) & ~np.isinf(value)))
        compared = np.isfinite(difference)
        norm = math.sqrt(float(np.sum(np.where(compared, value, 0.0) ** 2)))
        error = math.sqrt(float(np.sum(np.where(compared, difference, 0.0) ** 2)))
    worst = ""
    if wrong.any():
        place = tuple(int(i[0]) for i in np.nonzero(wrong))
        worst = f"d{list(place)} is {got[place]:.8g}, {value[place]:.8g} in float64, and {allowed[place]:.1g} apart would be allowed"
    relative = error / norm if norm else (0.0 if error == 0 else math.inf)
    return Check(
        relative, float(np.max(difference, where=compared, initial=0.0)), int(value.size), int(wrong.sum()), worst
    )
