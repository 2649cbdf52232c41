"""A GEMM beyond one plain bf16 product on Hopper: other formats and majors, any size, fused terms, batches, groups.

``Gemm(...)`` makes one of these where it is asked for more than the plain kernel does. What the arrays of a call ask
for (a bias, C, scales, their majors) chooses the kernel: one for each mixture, made when first needed and kept.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.config import ConfigError, Epilogue, GemmConfig, Problem, Violation
from stridewright.kernels.fusion import BLOCK_K, Fusion
from stridewright.kernels.hopper_rules import element_bytes, uses_terms

from . import relayout as copies
from .asked import in_order, no_such, require_number, require_options, require_product
from .bind import OperandError
from .division import Division, divide
from .gemm import Gemm, GemmEmulation
from .general_select import choose, slot_of
from .given import SIXTEEN_BITS, Collector, Given, Operand
from .launch import tell_once
from .select import SMS
from .source import KERNEL_NAME
from .tensors import Tensor, empty, of_device, of_numpy, zeros
from .terms import packed, pointer_offset
from .tuned import require_load

if TYPE_CHECKING:
    from .emulator import Progress
    from .general_bind import GeneralBound

log = logging.getLogger(__name__)


class GeneralGemm(Gemm):
    """``d = act(alpha * (a @ b.T) + beta * c + bias)`` and more; see :class:`Gemm` for the arguments.

    >>> g = Gemm(100, 105, 107, "f16", "f16", "f16", activation="relu")
    >>> type(g).__name__, g.config.problems()
    ('GeneralGemm', [])
    """

    _launch_with: Callable[..., Any] = staticmethod(lambda a, b, out, stream, others: None)
    """Launches what is kept for these arrays and others, and returns ``out``, or does nothing and returns None."""

    _float32_numbers: tuple[str, ...] = ("alpha", "beta", "scale_a", "scale_b")
    """What a call gives as a number must be a float32 by itself."""

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        a: str = "bf16",
        b: str = "bf16",
        d: str = "bf16",
        arch: str = "sm_90a",
        a_major: str = "k",
        b_major: str = "k",
        config: GemmConfig | None = None,
        *,
        activation: str = "none",
        gated: bool = False,
        expression: str = "",
        promote: int | None = None,
        batch: int | None = None,
        groups: int | None = None,
        group_by: str = "m",
        relayout: str = "refuse",
        fusion: Fusion | None = None,
        load: str = "bursts",
        deterministic: bool = False,
    ):
        require_load(load)
        self.load, self.deterministic = load, deterministic
        self.m, self.n, self.k = (_size(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
        several = ("groups", groups) if batch is None else ("batch", batch)
        self.batches = 1 if several[1] is None else _size(*several)
        _require_choices(batch, groups, group_by, relayout, arch)
        require_options(promote, fusion)
        form = "batch" if batch is not None else f"groups_{group_by}" if groups is not None else "one"
        if config is not None:
            if not isinstance(config, GemmConfig):
                raise TypeError(f"config={config!r}: must be a GemmConfig; GemmConfig().replace(tile_n=128) makes one")
            fusion = fusion or (config.fusion if config.fusion.uses_terms else None)
            promote = config.pipeline.promote if promote is None else promote
        self._relayout = relayout
        self._given_config = config
        self.asked_majors = (a_major, b_major)
        """How the caller's arrays are said to lie; with copies, the kernel may read them otherwise."""
        if relayout == "copy" and config is None:
            a_major, b_major = (
                _readable_major(form, name, dtype, major)
                for name, dtype, major in (("a", a, a_major), ("b", b, b_major))
            )
        wanted = fusion or Fusion(activation=activation, gated=bool(gated), expression=expression)  # type: ignore[arg-type]
        if promote is None:
            promote = BLOCK_K if wanted.scale_a == "block" else 0
        self._promote = promote
        self.problem = Problem(
            m=max(self.m, 1), n=max(self.n, 1), k=max(self.k, 1), a=a, b=b, d=d, a_major=a_major, b_major=b_major, form=form  # type: ignore[arg-type]
        )  # fmt: skip
        self.config = self._configured(self.problem, wanted, direct=False)
        self._variants: dict[Any, GeneralGemm] = {}
        self._maps = {}
        self._calls = None
        self.seconds = {}

    def _configured(self, problem: Problem, fusion: Fusion, direct: bool) -> GemmConfig:
        """The configuration for a problem and what is fused: the caller's, or chosen. Raises ConfigError."""
        promote = self._promote or (BLOCK_K if fusion.scale_a == "block" else 0)
        if self._given_config is not None:
            given = self._given_config.replace(problem=problem, fusion=fusion, promote=promote).require_valid()
            return in_order(given, self.deterministic, given=True)
        probe = GemmConfig(problem=problem, fusion=fusion, epilogue=Epilogue(store="direct"))
        slot = slot_of(promote, element_bytes(problem.a)) if problem.a in _BYTES else 64
        probe = probe.replace(promote=promote, tile_m=64, tile_n=8, tile_k=slot, consumers=1, stages=2)
        probe.require_valid()
        chosen = choose(problem, fusion, promote, direct, self.batches, load=self.load)
        return in_order(chosen, self.deterministic, given=False)

    # ---- what it is ---------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Columns of D: N, or of gated pairs half of that."""
        return self.n // 2 if self.config.fusion.gated else self.n

    @property
    def several_d(self) -> bool:
        """Whether D has three dimensions: a matrix for each of a batch, or for each group of K."""
        return self.problem.form in ("batch", "groups_k")

    @property
    def shape_d(self) -> tuple[int, ...]:
        """D's shape.

        >>> Gemm(64, 128, 32, batch=3).shape_d
        (3, 64, 128)
        """
        one = (self.m, self.columns)
        return (self.batches, *one) if self.several_d else one

    def division(self, sms: int = SMS) -> Division:
        """How the tiles are divided among the CTAs of a launch.

        >>> Gemm(64, 128, 32, batch=3).division().batches
        3
        """
        m, n, k = (max(size, 1) for size in (self.m, self.n, self.k))
        rows, columns = (n, m) if self.config.schedule.swap else (m, n)
        return divide(self.config, rows, columns, k, sms, max(self.batches, 1))

    def tiles(self) -> int:
        """Output tiles, of all matrices, counting those that only fill up a cluster."""
        return self.division().blocks * self.division().cluster

    def multiplies(self) -> int:
        """wgmma instructions that a launch issues; of groups of K as if each had all of it."""
        config = self.config
        steps = config.tile.k * element_bytes(config.problem.a) // 32
        return self.tiles() * -(-max(self.k, 1) // config.tile.k) * steps * (config.tile.m // 64)

    def variant(self, fusion: Fusion, a_major: str, b_major: str, direct: bool) -> GeneralGemm:
        """The GEMM with the kernel for this mixture; itself, if that is its own. Kept."""
        direct = direct and self.config.epilogue.store == "tma"
        if (fusion, a_major, b_major) == (
            self.config.fusion,
            self.problem.a_major,
            self.problem.b_major,
        ) and not direct:
            return self
        key = (fusion, a_major, b_major, direct)
        found = self._variants.get(key)
        if found is None:
            found = object.__new__(GeneralGemm)
            found.__dict__.update({name: value for name, value in vars(self).items() if name not in _CACHED})
            found.problem = dataclasses.replace(self.problem, a_major=a_major, b_major=b_major)  # type: ignore[arg-type]
            found.config = self._configured(found.problem, fusion, direct)
            found._variants, found._maps, found.seconds = {}, {}, {}
            # Of two threads that come at once the first one's is kept.
            found = self._variants.setdefault(key, found)
        return found

    # ---- a call -------------------------------------------------------------------------------------------------------

    def collect(
        self, tensor_of: Callable[[Any, str], Tensor], a: Any, b: Any, out: Any, others: dict[str, Any]
    ) -> Given:
        """The call's arrays, checked. Raises OperandError naming the array, what it is and what would do."""
        unknown = others.keys() - _OTHERS
        if unknown:
            raise TypeError(no_such(unknown, (*_OTHERS, "out")))
        for name in self._float32_numbers:
            require_number(name, others.get(name))
        collector = self._collector(tensor_of)
        given = Given(collector.operand(a, "a"), collector.operand(b, "b"))
        given.numbers |= {"alpha": 1.0, "beta": 0.0, "batches": self.batches}
        if out is not None:
            given.out = collector.result(out)
        collector.factor(given, others.get("alpha", 1.0))
        collector.added(given, others.get("c"), others.get("beta", 0.0))
        if others.get("bias") is not None:
            collector.bias(given, others["bias"])
        collector.both_scales(given, others.get("scale_a"), others.get("scale_b"))
        if "alpha" in self._float32_numbers:
            require_product(given.numbers["alpha"])
        collector.auxiliary(given, others.get("aux"), others.get("amax"), others.get("scale_d"))
        collector.offsets(given, others.get("offsets"))
        collector.require_what_is_named(given)
        collector.require_apart(given)
        return given

    def _collector(self, tensor_of: Callable[[Any, str], Tensor]) -> Collector:
        """What checks a call's arrays."""
        return Collector(self, tensor_of)

    def variant_for(self, a: Any, b: Any, out: Any = None, **others: Any) -> GeneralGemm:
        """The GEMM whose kernel a call with these arrays runs: its config, source, ptx and build say what runs, where those of
        this GEMM are of a call without bias, C, scales and the like. Arrays are numpy's. Raises what the call raises.

        >>> g = Gemm(64, 32, 64, "f16", "f16", "f16")
        >>> a, b = np.zeros((64, 64), np.float16), np.zeros((32, 64), np.float16)
        >>> g.variant_for(a, b, bias=np.zeros(32, np.float32)).config.fusion.bias
        'n'
        """
        return self.kernel_for(self.collect(of_numpy, a, b, out, others))[0]

    def kernel_for(self, given: Given) -> tuple[GeneralGemm, dict[str, str]]:
        """The variant whose kernel does what the arrays ask for, and the operands that must be copied first: by name, the
        major that the copy gets. Raises OperandError where a copy is needed and was not allowed.
        """
        majors, copied = {}, {}
        for operand in (given.a, given.b):
            majors[operand.name], copy = self._major_of(operand)
            if copy:
                copied[operand.name] = majors[operand.name]
        own = self.config.fusion
        # What is applied is the GEMM's; what is added and scaled is what the call gives.
        kept = Fusion(alpha=own.alpha, activation=own.activation, gated=own.gated, expression=own.expression)
        fusion = dataclasses.replace(kept, **given.fusion)
        direct = False
        if given.out is not None:
            size, out = given.out.itemsize, given.out
            pitches = [
                stride * size for stride, length in zip(out.strides[:-1], out.shape[:-1], strict=True) if length > 1
            ]
            direct = any(value % copies.ALIGNMENT for value in (out.address, *pitches))
        return self.variant(fusion, majors["a"], majors["b"], direct), copied

    def _major_of(self, operand: Operand) -> tuple[str, bool]:
        """The major in which the kernel reads this operand, and whether it must be copied for that."""
        wanted = _MAJORS_OF_FORMS.get(self.problem.form, {}).get(operand.name)
        own = self.problem.a_major if operand.name == "a" else self.problem.b_major
        if self._given_config is not None:
            wanted = wanted or own
        readable = ("k", "mn") if operand.dtype in SIXTEEN_BITS else ("k",)
        majors = (wanted,) if wanted else (own, *(major for major in readable if major != own))
        for major in majors:
            if major in readable and operand.contiguous(major):
                why = operand.misaligned(major)
                if why:
                    _tell_once(
                        f"{operand.name}: {why} (TMA); it is copied to padded rows before each launch, which takes time"
                    )
                return major, bool(why)
        if self._relayout == "copy":
            return wanted or "k", True
        axes = "(M, K)" if operand.name == "a" else "(N, K)"
        if operand.major == "mn" and "mn" not in readable:
            reason = f"is MN-major, and wgmma reads {operand.dtype} only K-major"
        elif operand.major:
            reason = f"is {operand.major.upper()}-major, and this kernel reads it {(wanted or 'k').upper()}-major"
        else:
            reason = f"has neither dimension of {axes} contiguous (strides {operand.tensor.strides})"
        name, library = operand.name, "np" if operand.tensor.on_host else "xp"
        copy = f"ascontiguousarray({name})"
        if wanted == "mn":
            flat = len(operand.tensor.shape) == 2
            copy = f"asfortranarray({name})" if flat else f"ascontiguousarray({name}.swapaxes(1, 2)).swapaxes(1, 2)"
        raise OperandError(
            f'{name}: {reason}; relayout="copy" copies it on the device before each launch, {library}.{copy} once'
        )

    def copy_plan(
        self, operand: Operand, major: str
    ) -> tuple[Operand, tuple[int, int, int], tuple[int, int, int], int]:
        """The copy of an operand: as the kernel will read it, and the copy kernel's shape, source strides and pitch."""
        batches, rows, k = operand.shape
        shape, strides = (batches, rows, k), operand.strides
        if major == "mn":
            shape, strides = (batches, k, rows), (strides[0], strides[2], strides[1])
        pitch = copies.padded_pitch(shape[2], element_bytes(operand.dtype))
        target = empty((batches, shape[1], pitch), operand.tensor.dtype, operand.tensor)
        between = shape[1] * pitch if batches > 1 else 0
        lies = (between, pitch, 1) if major == "k" else (between, 1, pitch)
        return dataclasses.replace(operand, tensor=target, strides=lies), shape, strides, pitch

    @property
    def empty_result(self) -> bool:
        """Whether no element of D is written: D has none, or there is no group."""
        return 0 in self.shape_d or self.batches == 0

    def without_k(self, operand: Operand) -> Operand:
        """Zeros, of one element of K, in place of an operand without any: the sums are 0 then, and C and the bias remain."""
        unit = copies.ALIGNMENT // element_bytes(operand.dtype)
        rows = operand.shape[1]
        mn = (self.problem.a_major if operand.name == "a" else self.problem.b_major) == "mn"
        shape = (1, -(-rows // unit) * unit) if mn else (rows, unit)
        tensor = zeros(shape, operand.tensor.dtype, operand.tensor)
        strides = (0, 1, shape[1]) if mn else (0, unit, 1)
        return dataclasses.replace(operand, tensor=tensor, shape=(1, rows, 1), strides=strides)

    def maps_for(self, a: Operand, b: Operand, d: Tensor) -> Any:
        """The tensor maps of a launch on these."""
        config = self.config
        first, second = (b, a) if config.schedule.swap else (a, b)
        majors = {"a": self.problem.a_major, "b": self.problem.b_major}
        (a_row, a_batch), (b_row, b_batch) = (one.pitches(majors[one.name]) for one in (first, second))
        if first.shape[0] == 1 and self.batches > 1:
            a_batch = 0
        if second.shape[0] == 1 and self.batches > 1:
            b_batch = 0
        size = d.itemsize
        d_row = d.strides[-2] * size if self.m > 1 else copies.padded_pitch(self.columns, size) * size
        d_batch = d.strides[0] * size if len(d.shape) == 3 and self.batches > 1 else d_row * max(self.m, 1)
        sizes = (self.m, self.n, a.shape[2])
        return self.derivation.tensor_maps(
            *sizes, a_row_bytes=a_row, b_row_bytes=b_row, d_row_bytes=d_row, batches=self.batches,
            a_batch_bytes=a_batch, b_batch_bytes=b_batch, d_batch_bytes=d_batch,
        )  # fmt: skip

    def sizes_for(self, a: Operand, d: Tensor) -> tuple[np.uint64, np.uint32, np.uint32, np.uint32]:
        """D's row stride, and the kernel's own m, n and k."""
        m, n = (self.n, self.m) if self.config.schedule.swap else (self.m, self.n)
        row = d.strides[-2] if self.m > 1 else self.columns
        return np.uint64(row), np.uint32(m), np.uint32(n), np.uint32(a.shape[2])

    def numbers_for(self, given: Given, d: Tensor) -> dict[str, float]:
        """The numbers of the struct ``Terms``."""
        return {**given.numbers, "d_batch_stride": d.strides[0] if len(d.shape) == 3 else 0}

    # ---- on a GPU -----------------------------------------------------------------------------------------------------

    def __call__(
        self, a: Any, b: Any, c: Any = None, bias: Any = None, alpha: Any = 1.0, beta: float = 0.0, out: Any = None,
        stream: Any = None, **others: Any,
    ) -> Any:  # fmt: skip
        """The result on the current GPU, in the caller's kind of array or in ``out``; see :class:`Gemm` for the arguments."""
        given = {"c": c, "bias": bias, "alpha": alpha, "beta": beta, **others}
        if self._launch_with(a, b, out, stream, given) is not None:
            return out
        from .calls import call_with

        return call_with(self, a, b, out, stream, given)

    def bind(  # type: ignore[override]
        self, a: Any, b: Any, out: Any = None, dependent: bool = False, workspace: Any = None, **others: Any
    ) -> GeneralBound:
        """The launch for these arrays, prepared. ``others``: c, bias, alpha, beta, aux, amax, scale_a, scale_b, scale_d,
        offsets. ``workspace`` as :meth:`Gemm.bind` takes it."""
        from .general_bind import GeneralBound

        return GeneralBound(self, self.collect(of_device, a, b, out, others), a, out, dependent, workspace)

    # ---- on the emulator ----------------------------------------------------------------------------------------------

    def emulate(
        self,
        a: Any,
        b: Any,
        *,
        seed: int = 0,
        strict: bool = True,
        numerics: str = "float32",
        sms: int = SMS,
        timeline: bool = False,
        progress: Callable[[Progress], None] | None = None,
        out: Any = None,
        **others: Any,
    ) -> GemmEmulation:
        """Runs this kernel's PTX on the emulator, after the copies that its operands need (their PTX too). Arrays are
        numpy's; aux and amax are written in place. D starts with every byte 0xff, so an element that is not written shows.
        """
        from .emulator import EmulationError, emulate_ptx
        from .where import legend, placed

        if isinstance(sms, bool) or not isinstance(sms, int | np.integer) or sms < 1:
            raise ValueError(
                f"sms={sms!r}: must be a whole number of multiprocessors, from 1 up; an H100 or H200 has {SMS}"
            )
        given = self.collect(of_numpy, a, b, out, others)
        kernel, copied = self.kernel_for(given)
        d = given.out or empty(self.shape_d, self.problem.d, given.a.tensor)
        if self.empty_result:
            return GemmEmulation(d=d.array, races=(), conflicts=(), timeline=None, seconds=0.0, result=None)  # type: ignore[arg-type]
        operands = [kernel._emulated_operand(one, copied, seed) for one in (given.a, given.b)]
        start = time.perf_counter()
        try:
            result = emulate_ptx(
                kernel.ptx, KERNEL_NAME, kernel.grid(int(sms)), (kernel.config.threads, 1, 1),
                kernel.emulated_arguments(given, operands[0], operands[1], d, int(sms)),
                cluster=(kernel.config.cluster.m * kernel.config.cluster.n, 1, 1),
                shared=kernel.derivation.shared_bytes, seed=seed, strict=strict, numerics=numerics,
                timeline=timeline, progress=progress,
            )  # fmt: skip
        except EmulationError as error:
            error.args = (legend(kernel.derivation, str(error)), *error.args[1:])
            raise
        seconds = time.perf_counter() - start
        self.seconds["run"] = seconds
        result = dataclasses.replace(result, races=placed(kernel.derivation, result.races))
        return GemmEmulation(
            d=d.array, races=result.races, conflicts=result.bank_conflicts, timeline=result.timeline, seconds=seconds, result=result
        )  # fmt: skip

    def _emulated_operand(self, operand: Operand, copied: dict[str, str], seed: int) -> Operand:
        """The operand as the kernel reads it: as it is, its copy, or zeros."""
        from .emulator import emulate_ptx

        if self.k == 0:
            return self.without_k(operand)
        if operand.name not in copied:
            return operand
        copy, shape, strides, pitch = self.copy_plan(operand, copied[operand.name])
        element = element_bytes(operand.dtype)
        arguments = copies.arguments(operand.tensor.raw, copy.tensor.raw, shape, strides, pitch)
        ptx = copies.build(self.config.arch).ptx
        grid = copies.grid(shape[1], shape[2], shape[0])
        emulate_ptx(ptx, f"relayout_{element}", grid, copies.BLOCK, arguments, seed=seed)
        return copy

    def emulated_arguments(self, given: Given, a: Operand, b: Operand, d: Tensor, sms: int) -> list[Any]:
        """The kernel's arguments as the emulator takes them."""
        from .emulator import TensorMapArgument
        from .emulator.launch import StructArgument

        maps, division = self.maps_for(a, b, d), self.division(sms)
        first, second = (b, a) if self.config.schedule.swap else (a, b)
        start = 0 if self.config.split.reduce == "atomic" else np.nan
        sums = np.full(division.partial_floats, start, dtype=np.float32) if division.shared_blocks else None
        arguments: list[Any] = [
            TensorMapArgument(maps.a, first.tensor.raw),
            TensorMapArgument(maps.b, second.tensor.raw),
            bytes(128) if maps.d is None else TensorMapArgument(maps.d, d.raw),
            bytes(128) if maps.d_tail is None else TensorMapArgument(maps.d_tail, d.raw),
            d.raw,
            *self.sizes_for(a, d),
            order if (order := self.order_table(sms)).size else None,
            sums,
            np.zeros(division.counters, dtype=np.uint32) if division.counters else None,
            np.uint32(division.shared_blocks),
        ]
        if uses_terms(self.config):
            struct = packed(self.numbers_for(given, d), {}).tobytes()
            pointers = {pointer_offset(name): tensor.raw for name, tensor in given.pointers.items()}
            arguments.append(StructArgument(struct, pointers))
        return arguments


_BYTES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8")
_CACHED = ("source", "build", "kernel", "_calls", "_launch_with", "_building")
_OTHERS = ("c", "bias", "alpha", "beta", "aux", "amax", "scale_a", "scale_b", "scale_d", "offsets")


_MAJORS_OF_FORMS = {"groups_m": {"a": "k"}, "groups_k": {"a": "mn", "b": "mn"}}
"""What groups ask of their operands, whatever the hardware could read."""


def _readable_major(form: str, name: str, dtype: str, major: str) -> str:
    """The major that an operand of this is copied to, if it must be."""
    if major not in ("k", "mn"):
        return major  # the problem's own rule says what there is
    return _MAJORS_OF_FORMS.get(form, {}).get(name) or (major if dtype in SIXTEEN_BITS else "k")


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError((Violation(parameter=name, value=repr(value), rule="must be a whole number of elements"),))
    if value < 0 or value >= 2**31:
        rule = "must be from 0 up" if value < 0 else "must be below 2^31 (TMA coordinates are 32-bit signed)"
        raise ConfigError((Violation(parameter=name, value=int(value), rule=rule),))
    return int(value)


def _require_choices(batch: object, groups: object, group_by: str, relayout: str, arch: str) -> None:
    found = []
    if batch is not None and groups is not None:
        found.append(
            Violation(parameter="groups", value=groups, rule="a launch has a batch or groups", fix="batch=None")
        )
    if group_by == "k" and groups is None:
        rule = "says how groups are made, and there are none"
        found.append(Violation(parameter="group_by", value="'k'", rule=rule, fix="groups=8 asks for so many"))
    for name, value, allowed in (
        ("group_by", group_by, ("m", "k")),
        ("relayout", relayout, ("refuse", "copy")),
        ("arch", arch, ("sm_90a",)),
    ):
        if value not in allowed:
            found.append(
                Violation(parameter=name, value=repr(value), rule=f"must be {' or '.join(map(repr, allowed))}")
            )
    if found:
        raise ConfigError(tuple(found))


def _tell_once(text: str) -> None:
    """Logs a warning the first time it is given."""
    tell_once(log, text)
