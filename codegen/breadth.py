"""Random mixtures of shape, type, major, epilogue, batch, group and configuration, each with its reference.

One generator for the emulator and for a GPU: ``recipes`` draws kernels, ``cases`` draws problems for one of them, and
``Case`` makes the arrays, calls the GEMM and compares. What is refused is counted by the parameter that refused it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stridewright.kernels.config import ConfigError, GemmConfig, Problem
from stridewright.kernels.fusion import ACTIVATIONS, BLOCK_K, Fusion
from stridewright.kernels.hopper_rules import element_bytes

from .reference import Expected, activation, expected, spread, widened
from .tensors import numpy_type

_LARGEST_F16 = 65504.0
EXPRESSION = "fmaxf(x, 0.1f * x) + 0.25f * float(row) - float(col)"
_FORMATS = {
    "bf16": ("bf16", "f32", "bf16", "f16", "s8", "e4m3"),
    "f16": ("f16", "f32", "f16", "bf16"),
    "tf32": ("f32", "f32", "bf16"),
    "e4m3": ("bf16", "f32", "f16", "e4m3", "e5m2"),
    "e5m2": ("bf16", "f32", "f16"),
    "s8": ("s32", "s32", "s8", "f32", "bf16"),
}


@dataclass(frozen=True)
class Recipe:
    """A kernel: its formats, majors, form, what is fused and its configuration."""

    config: GemmConfig
    relayout: str = "copy"

    @property
    def problem(self) -> Problem:
        """Formats, majors and form."""
        return self.config.problem


@dataclass(frozen=True)
class Case:
    """One problem of a recipe. ``seed`` draws the arrays; ``padding`` of rows in elements, for a, b and d."""

    recipe: Recipe
    m: int
    n: int
    k: int
    batches: int
    seed: int
    integers: bool
    padding: tuple[int, int, int]
    shared: tuple[bool, bool]

    def __str__(self) -> str:
        many = f" x {self.batches}" if self.recipe.problem.form != "one" else ""
        return f"{self.m}x{self.n}x{self.k}{many} seed {self.seed} {self.recipe.config.name}"


def draw_recipe(random: np.random.Generator, refused: Counter[str], tries: int = 400) -> Recipe:
    """A valid kernel; what was drawn and refused is counted by parameter."""
    for _ in range(tries):
        config = _draw_config(random)
        violations = config.violations()
        if not violations:
            return Recipe(config)
        refused.update({violation.parameter for violation in violations})
    raise AssertionError(f"no valid kernel in {tries} draws: {refused}")


def _draw_config(random: np.random.Generator) -> GemmConfig:
    def one_of(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    a = one_of("bf16", "bf16", "f16", "f16", "tf32", "e4m3", "e4m3", "e5m2", "s8")
    b = one_of("e4m3", "e5m2") if a in ("e4m3", "e5m2") else a
    sixteen = a in ("bf16", "f16")
    form = one_of("one", "one", "one", "batch", "groups_m", "groups_k" if sixteen else "groups_m")
    majors: list[Any] = ["mn" if sixteen and random.random() < 0.4 else "k" for _ in "ab"]
    if form == "groups_m":
        majors[0] = "k"
    if form == "groups_k":
        majors = ["mn", "mn"]
    fusion, promote = Fusion(), 0
    if random.random() < 0.6:
        fusion = Fusion(
            alpha=random.random() < 0.5,
            c=one_of("", "", "f32", "bf16", "f16"),
            bias=(bias := one_of("", "n", "n", "m")),
            bias_format=one_of("f32", "bf16", "f16") if bias else "f32",
            activation=one_of(*ACTIVATIONS),
            gated=random.random() < 0.1,
            aux=random.random() < 0.15,
            amax=random.random() < 0.15,
            scale_a=one_of("", "", "row"),
            scale_b=one_of("", "", "row"),
            scale_d=random.random() < 0.15,
        )
        if random.random() < 0.1:
            fusion = dataclasses.replace(fusion, activation="none", gated=False, expression=EXPRESSION)
    if a in ("e4m3", "e5m2") and random.random() < 0.5:
        promote = BLOCK_K
        if random.random() < 0.5:
            fusion = dataclasses.replace(fusion, scale_a="block", scale_b="block")
    kind, consumers = one_of(("cooperative", 1), ("cooperative", 2), ("cooperative", 3), ("pingpong", 2))
    split = one_of("none", "none", "none", "split", "stream")
    config = GemmConfig(
        problem=Problem(a=a, b=b, d=one_of(*_FORMATS[a]), a_major=majors[0], b_major=majors[1], form=form),
        fusion=fusion,
    )
    config = config.replace(
        tile_m=one_of(64, 64, 128, 128, 192, 256),
        tile_n=one_of(8, 16, 32, 48, 64, 64, 96, 128, 128, 136, 192),
        tile_k=one_of(128, 128, 64) // element_bytes(a),
        stages=one_of(2, 3, 4),
        schedule_kind=kind,
        consumers=consumers,
        swap=bool(random.random() < 0.2),
        order=one_of("grouped", "serpentine", "row", "nested", "hilbert"),
        group_m=one_of(1, 2, 8),
        cluster_m=one_of(1, 1, 1, 2),
        cluster_n=one_of(1, 1, 1, 2),
        split_kind=split,
        parts=one_of(2, 3) if split == "split" else 1,
        reduce=one_of("ordered", "atomic") if split != "none" else one_of("ordered", "ordered"),
        store=one_of("tma", "direct"),
        promote=promote,
    )
    overlapped = config.replace(accumulators=2)
    if promote == config.tile.k and random.random() < 0.5 and not overlapped.violations():
        return overlapped
    return config


def draw_case(random: np.random.Generator, recipe: Recipe, most: tuple[int, int, int] = (150, 150, 300)) -> Case:
    """A problem that the recipe's kernel takes, edges more often than by chance."""

    def size(limit: int, step: int = 1) -> int:
        edge = random.random()
        value = 1 if edge < 0.08 else int(random.integers(1, limit + 1))
        if edge > 0.85:
            value = max(value // 64 * 64, 1) + int(random.integers(-1, 2))
        return max(value // step * step, step)

    config, form = recipe.config, recipe.problem.form
    step = 8 if config.epilogue.store == "tma" else 2 if config.fusion.gated else 1
    k = 0 if random.random() < 0.03 and config.fusion.scale_a != "block" else size(most[2])
    batches = 1 if form == "one" else int(random.integers(0 if form != "batch" else 1, 5))
    m = size(most[0])
    if batches == 0:
        m, k = (0, k) if form == "groups_m" else (m, 0)
    shared = (form == "batch" and random.random() < 0.3, form == "batch" and random.random() < 0.3)
    padding = tuple(int(random.choice((0, 0, 1, 3, 8, 16))) for _ in range(3))
    if config.epilogue.store == "tma":
        padding = (*padding[:2], padding[2] // 8 * 8)
    return Case(
        recipe=recipe,
        m=m,
        n=size(most[1], step),
        k=k,
        batches=batches,
        seed=int(random.integers(2**31)),
        integers=bool(random.random() < 0.75),
        padding=padding,  # type: ignore[arg-type]
        shared=shared,
    )


def draw(
    seed: int, count: int, kernels: int, most: tuple[int, int, int] = (150, 150, 300)
) -> tuple[list[Case], Counter[str]]:
    """``count`` cases of at most ``kernels`` kernels, and how often each parameter refused a kernel that was drawn.

    >>> cases, refused = draw(seed=1, count=4, kernels=2)
    >>> len({case.recipe for case in cases}), min(refused.values()) > 0
    (2, True)
    """
    random = np.random.default_rng(seed)
    refused: Counter[str] = Counter()
    recipes = [draw_recipe(random, refused) for _ in range(kernels)]
    return [draw_case(random, recipes[number % kernels], most) for number in range(count)], refused


@dataclass
class Arrays:
    """The arrays of a case, in numpy's memory."""

    a: Any
    b: Any
    others: dict[str, Any]
    sizes: list[int]
    """Of the groups."""


def make(case: Case) -> Arrays:
    """Draws the arrays: small whole numbers, whose sums are exact, or normal ones; rows padded, majors as the recipe has them."""
    random = np.random.default_rng(case.seed)
    problem, fusion, form = case.recipe.problem, case.recipe.config.fusion, case.recipe.problem.form

    def values(shape: tuple[int, ...], dtype: str) -> Any:
        drawn = random.integers(-2, 3, shape) if case.integers or dtype == "s8" else random.standard_normal(shape)
        return drawn.astype(numpy_type(dtype))

    def operand(rows: int, dtype: str, major: str, several: bool, padding: int) -> Any:
        outer = (case.batches,) if several else ()
        inner = (rows, case.k + padding) if major == "k" else (case.k, rows + padding)
        made = values((*outer, *inner), dtype)
        return made[..., : case.k] if major == "k" else np.swapaxes(made[..., :rows], -1, -2)

    a_several = form == "batch" and not case.shared[0]
    b_several = (form == "batch" and not case.shared[1]) or form == "groups_m"
    a = operand(case.m, problem.a, problem.a_major, a_several, case.padding[0])
    b = operand(case.n, problem.b, problem.b_major, b_several, case.padding[1])
    outer = (case.batches,) if form in ("batch", "groups_k") else ()
    others: dict[str, Any] = {}
    if fusion.alpha:
        others["alpha"] = 0.5 if random.random() < 0.5 else np.array([0.5], np.float32)
    if fusion.c:
        others |= {"c": values((*outer, case.m, case.n), fusion.c), "beta": float(random.choice((1.0, -0.5)))}
    if fusion.bias:
        along: tuple[int, ...] = (case.m, 1) if fusion.bias == "m" else (case.n,)
        if form == "batch" and random.random() < 0.5:
            along = (case.batches, *((case.m, 1) if fusion.bias == "m" else (1, case.n)))
        others["bias"] = values(along, fusion.bias_format)
    for name, rows in (("scale_a", case.m), ("scale_b", case.n)):
        kind = getattr(fusion, name)
        if kind == "row":
            others[name] = random.choice((0.5, 1.0, 2.0), rows).astype(np.float32)
        if kind == "block":
            lines = rows if name == "scale_a" else -(-rows // BLOCK_K)
            shape = (case.batches, lines) if name == "scale_b" and form == "groups_m" else (lines,)
            others[name] = random.choice((0.5, 1.0, 2.0), (*shape, -(-case.k // BLOCK_K))).astype(np.float32)
    if fusion.aux:
        others["aux"] = _poisoned((*outer, case.m, case.n), problem.d)
    if fusion.amax:
        others["amax"] = np.zeros(1, np.float32)
    if fusion.scale_d:
        others["scale_d"] = np.array([0.25], np.float32)
    sizes: list[int] = []
    if form in ("groups_m", "groups_k"):
        total = case.m if form == "groups_m" else case.k
        cuts = np.sort(random.integers(0, total + 1, max(case.batches - 1, 0)))
        if case.batches > 2 and random.random() < 0.5:
            cuts[1] = cuts[0]
        edges = [0, *map(int, np.sort(cuts)), *([total] if case.batches else [])]
        others["offsets"] = np.array(edges, np.int32)
        sizes = [int(size) for size in np.diff(edges)]
    return Arrays(a, b, others, sizes)


def _poisoned(shape: tuple[int, ...], dtype: str) -> Any:
    """An array whose every byte is 0xff."""
    kind = numpy_type(dtype)
    return np.full(int(np.prod(shape)) * kind.itemsize, 0xFF, np.uint8).view(kind).reshape(shape)


def reference(case: Case, arrays: Arrays, step: float, xp: Any = np) -> Expected:
    """What the case should give; ``step`` of the accumulator for numbers whose sums are not exact."""
    problem, fusion, others = case.recipe.problem, case.recipe.config.fusion, arrays.others

    def put(array: Any, dtype: str) -> Any:
        raw = array.view(np.uint8) if dtype in ("e4m3", "e5m2") else array
        if xp is np:
            return widened(raw, dtype)
        if dtype in ("bf16", "e4m3", "e5m2"):
            return xp.asarray(widened(raw, dtype))
        return widened(xp.asarray(raw), dtype, xp)

    # The operands are numpy's here: where the sums are made, they are made in float64 all the same.
    a, b = put(np.ascontiguousarray(arrays.a), problem.a), put(np.ascontiguousarray(arrays.b), problem.b)
    if fusion.scale_a == "row":
        a = a * xp.asarray(others["scale_a"]).astype(xp.float64)[:, None]
        b = b
    if fusion.scale_b == "row":
        b = b * xp.asarray(others["scale_b"]).astype(xp.float64)[:, None]
    if fusion.scale_a == "block":
        a = a * spread(xp.asarray(others["scale_a"]), a.shape, 1, xp)
        b = b * spread(xp.asarray(others["scale_b"]), b.shape, BLOCK_K, xp)
    alpha = float(np.asarray(others.get("alpha", 1.0)).reshape(-1)[0])
    extra: dict[str, Any] = {
        name: xp.asarray(others[name].astype(np.float64)) for name in ("c", "bias") if name in others
    }
    scale_d = float(others["scale_d"][0]) if "scale_d" in others else 1.0
    exact = case.integers or problem.a == "s8"
    return expected(
        a, b, problem.d, step=0.0 if exact else step, alpha=alpha, beta=others.get("beta", 0.0), act=fusion.activation,
        gated=fusion.gated, expression=fusion.expression, scale_d=scale_d,
        product=_product(case, arrays, xp), xp=xp, **extra,
    )  # fmt: skip


def _product(case: Case, arrays: Arrays, xp: Any) -> Callable[[Any, Any], Any] | None:
    form, offsets = case.recipe.problem.form, arrays.others.get("offsets")
    if form == "groups_m":
        return lambda a, b: _stacked(
            [a[low:high] @ b[group].T for group, (low, high) in enumerate(_ranges(offsets))], (case.m, case.n), xp
        )
    if form == "groups_k":
        return lambda a, b: xp.stack(
            [a[:, low:high] @ b[:, low:high].T for low, high in _ranges(offsets)]
        ) if case.batches else xp.zeros((0, case.m, case.n))  # fmt: skip
    return None


def _stacked(parts: list[Any], shape: tuple[int, int], xp: Any) -> Any:
    return xp.concatenate(parts) if parts else xp.zeros(shape)


def _ranges(offsets: Any) -> Iterator[tuple[int, int]]:
    return zip(map(int, offsets[:-1]), map(int, offsets[1:]), strict=True)


def gemm_of(case: Case) -> Any:
    """The GEMM of the case. Raises ConfigError where the sizes do not go with the kernel."""
    from .gemm import Gemm

    problem = case.recipe.problem
    many: dict[str, Any] = {}
    if problem.form == "batch":
        many = {"batch": case.batches}
    elif problem.form != "one":
        many = {"groups": case.batches, "group_by": problem.form[-1]}
    return Gemm(
        case.m, case.n, case.k, problem.a, problem.b, problem.d, a_major=problem.a_major, b_major=problem.b_major,
        config=case.recipe.config, relayout=case.recipe.relayout, **many,
    )  # fmt: skip


def wrong(case: Case, arrays: Arrays, d: Any, step: float, xp: Any = np, written: dict[str, Any] | None = None) -> str:
    """What is wrong with a result (and with aux and amax, as the call left them: ``written``), "" if nothing."""
    should = reference(case, arrays, step, xp)
    beside = arrays.others if written is None else written
    problem = case.recipe.problem
    found = _difference("d", d, problem.d, should.d, should.allowed, xp)
    if not found and "aux" in beside:
        found = _difference("aux", beside["aux"], problem.d, should.x, should.x_allowed, xp)
    if not found and "amax" in beside and should.d.size:
        amax = float(beside["amax"][0])
        # Before scale_d, which is a quarter where it is given, and before the rounding to D's format.
        off = 1e-3 * max(should.amax, 1.0) + 4 * float(xp.max(should.allowed))
        if not abs(amax - should.amax) <= off:
            found = f"amax is {amax:g}, and the largest is {should.amax:g}"
    return found


@functools.cache
def reference_module() -> Any:
    """CuPy, if it computes float64 products and erf here (it needs cuBLAS and the CUDA headers for that), else numpy."""
    from .launch import import_cupy

    try:
        cupy = import_cupy()
        tried = cupy.ones((4, 4)) @ cupy.ones((4, 4)).T
        return cupy if float(activation("gelu", cupy)(tried)[0, 0]) > 3.9 else np
    except Exception:  # whatever is missing, numpy computes the same
        return np


def written_by(gemm: Any, arrays: Arrays) -> tuple[Any, dict[str, Any]]:
    """Runs a GEMM on the current GPU: D and the other arrays as the call left them, in numpy's memory."""
    from .launch import import_cupy

    cupy = import_cupy()
    others = {name: _on_device(array, cupy) for name, array in arrays.others.items()}
    d = gemm(_on_device(arrays.a, cupy), _on_device(arrays.b, cupy), **others)
    cupy.cuda.Device().synchronize()
    back = {name: cupy.asnumpy(array) if hasattr(array, "get") else array for name, array in others.items()}
    return cupy.asnumpy(d), back


def _on_device(array: Any, cupy: Any) -> Any:
    """The array on the device, with its strides: all views here begin with their owner."""
    if not isinstance(array, np.ndarray):
        return array
    owner = array if array.base is None else array.base
    eight = array.dtype.name.startswith("float8")
    if array.size == 0 or owner.dtype != array.dtype:
        return cupy.asarray(array.view(np.uint8) if eight else array)
    raw = cupy.asarray(owner.view(np.uint8) if eight else owner)
    return cupy.lib.stride_tricks.as_strided(raw, array.shape, array.strides)


def launch(case: Case) -> str:
    """Runs a case on the current GPU, into poisoned arrays; what ``emulate`` says of it."""
    from .launch import import_cupy

    cupy = import_cupy()
    try:
        gemm = gemm_of(case)
    except ConfigError as error:
        return f"refused: {error.violations[0].parameter}"

    arrays = make(case)
    *outer, columns = gemm.shape_d
    whole = cupy.asarray(_poisoned((*outer, columns + case.padding[2]), case.recipe.problem.d).view(np.uint8))
    kind = np.dtype(np.uint8) if case.recipe.problem.d in ("e4m3", "e5m2") else numpy_type(case.recipe.problem.d)
    out = whole.view(kind)[..., :columns]
    others = {name: _on_device(array, cupy) for name, array in arrays.others.items()}
    gemm(_on_device(arrays.a, cupy), _on_device(arrays.b, cupy), out=out, **others)
    cupy.cuda.Device().synchronize()
    beside = cupy.asnumpy(whole.view(kind)[..., columns:]) if case.padding[2] else np.zeros(0, np.uint8)
    if not (np.ascontiguousarray(beside).view(np.uint8) == 0xFF).all():
        return "elements beside d were written"
    eight = case.recipe.problem.a in ("e4m3", "e5m2")
    xp = reference_module()
    if xp is np:
        out = cupy.asnumpy(out)
        others = {name: cupy.asnumpy(array) if hasattr(array, "get") else array for name, array in others.items()}
    return wrong(case, arrays, out, 2.0**-13 if eight else 2.0**-23, xp, others)


def _difference(name: str, got: Any, dtype: str, value: Any, allowed: Any, xp: Any) -> str:
    raw = got.view(np.uint8) if dtype in ("e4m3", "e5m2") and got.dtype != np.uint8 else got
    numbers = widened(raw, dtype if dtype in ("e4m3", "e5m2") else "f64", xp)
    if numbers.ndim > value.ndim:  # both operands are shared by the batch
        value, allowed = xp.broadcast_to(value, numbers.shape), xp.broadcast_to(allowed, numbers.shape)
    if numbers.shape != value.shape:
        return f"{name} has shape {numbers.shape}, not {value.shape}"
    if not value.size:
        return ""
    right = xp.abs(numbers - value) <= allowed
    if dtype == "f16":  # beyond its largest number infinity of that sign is right
        over = xp.abs(value) + allowed > _LARGEST_F16
        right = right | (over & xp.isinf(numbers) & (xp.sign(numbers) == xp.sign(value)))
    if bool(right.all()):
        return ""
    place = tuple(int(i[0]) for i in xp.nonzero(~right))
    return (
        f"{int((~right).sum())} of {value.size} elements of {name} are wrong, the first at {place}: "
        f"{float(numbers[place]):g} is not {float(value[place]):g} within {float(allowed[place]):g}"
    )


def emulate(case: Case, numerics: str = "float32", sms: int = 3) -> str:
    """Runs a case on the emulator: what is wrong, "" if nothing; "refused: ..." where the sizes do not go with the kernel."""
    try:
        gemm = gemm_of(case)
    except ConfigError as error:
        return f"refused: {error.violations[0].parameter}"
    arrays = make(case)
    *outer, columns = gemm.shape_d
    whole = _poisoned((*outer, columns + case.padding[2]), case.recipe.problem.d)
    out = whole[..., :columns]
    run = gemm.emulate(arrays.a, arrays.b, sms=sms, numerics=numerics, out=out, **arrays.others)
    if run.races:
        return f"race: {run.races[0]}"
    if not (np.ascontiguousarray(whole[..., columns:]).view(np.uint8) == 0xFF).all():
        return "elements beside d were written"
    step = 2.0**-13 if numerics == "hardware" and case.recipe.problem.a in ("e4m3", "e5m2") else 2.0**-23
    return wrong(case, arrays, run.d, step)
