"""A Blackwell GEMM beyond one plain 16-bit product: every format, sums that are scaled, added to and activated, any size.

``Gemm(..., arch="sm_100a")`` makes one where it is asked for more than :class:`.blackwell_gemm.BlackwellGemm` does. Calls
are those of the Hopper family (:class:`.general.GeneralGemm`): the same arrays, checked by the same code. What differs is
the kernel, its arguments and which operands it can read. Emulated and assembled; never run on hardware.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.blackwell_problem_rules import plain_violations
from stridewright.kernels.blackwell_rules import uses_terms
from stridewright.kernels.blackwell_types import OPERANDS
from stridewright.kernels.config import ConfigError, GemmConfig, Problem, Violation
from stridewright.kernels.fusion import Fusion
from stridewright.layout.hardware.scale_factors import SCALED_TYPES

from . import relayout as copies
from .asked import require_options
from .bind import OperandError, _encoded, _multiprocessors
from .blackwell_gemm import BlackwellGemm, BlackwellKernel, legend, placed
from .blackwell_operands import PACKED, BlackwellCollector
from .blackwell_select import SMS, select
from .division import Division
from .gemm import GemmEmulation
from .general import GeneralGemm, _size, _tell_once
from .general_bind import GeneralBound
from .given import Given, Operand
from .source import KERNEL_NAME
from .tensors import Tensor, empty, of_device, of_numpy
from .terms import packed, pointer_offset
from .tuned import require_load
from .workspace import Memory, Sizes

if TYPE_CHECKING:
    from stridewright.layout.hardware import TensorMap

    from .emulator import Progress

_KEPT_OUT = ("source", "build", "kernel", "workspace_bytes", "_calls", "_launch", "_launch_with", "_building")


def asks_for_more(given: dict[str, Any], config: GemmConfig | None) -> bool:
    """Whether these arguments of ``Gemm`` ask for more than a plain product of 16-bit operands that lie where TMA reads them.

    >>> asks_for_more({"m": 64, "n": 64, "k": 64}, None), asks_for_more({"m": 64, "n": 64, "k": 63}, None)
    (False, True)
    """
    formats = [given.get(name, "bf16") for name in "abd"]
    if formats not in (["bf16"] * 3, ["f16"] * 3) or any(name in given for name in _OPTIONS):
        return all(name in OPERANDS for name in formats[:2]) or any(name in given for name in _OPTIONS)
    if isinstance(config, GemmConfig) and config.fusion.uses_terms:
        return True
    whole = {name: int(given[name]) for name in "mnk" if _whole(given.get(name))}
    if len(whole) < 3:
        return False
    if 0 in whole.values():
        return True
    majors = {f"{name}_major": given.get(f"{name}_major", "k") for name in "ab"}
    return any(True for _ in plain_violations(Problem(**whole, **majors)))  # type: ignore[arg-type]


def class_of(given: dict[str, Any], config: GemmConfig | None) -> type[BlackwellKernel]:
    """The class of the GEMM that these arguments of ``Gemm`` ask for.

    >>> class_of({"a": "nvfp4", "b": "nvfp4"}, None).__name__, class_of({}, None).__name__
    ('BlackwellScaledGemm', 'BlackwellGemm')
    """
    if any(given.get(name) in SCALED_TYPES for name in "ab"):
        from .blackwell_scaled import BlackwellScaledGemm

        return BlackwellScaledGemm
    return BlackwellGeneralGemm if asks_for_more(given, config) else BlackwellGemm


_OPTIONS = ("activation", "gated", "expression", "promote", "batch", "groups", "group_by", "relayout", "fusion")


def _whole(size: object) -> bool:
    return isinstance(size, int | np.integer) and not isinstance(size, bool) and int(size) >= 0


class BlackwellGeneralGemm(BlackwellKernel, GeneralGemm):
    """``d = act(alpha * (a @ b.T) + beta * c + bias)`` on sm_100a or sm_103a, of every format; see :class:`Gemm`.

    Operands: bf16, f16, tf32 (float32 arrays), e4m3, e5m2, e2m3, e3m2 and e2m1 (any two of these five together), s8 and u8.
    Results: bf16, f16, f32, e4m3, e5m2, s8 (saturating), and s32 of integers.

    >>> from stridewright.codegen.gemm import Gemm
    >>> g = Gemm(100, 105, 107, "e4m3", "e5m2", "f32", "sm_100a", activation="relu")
    >>> type(g).__name__, g.config.problems()
    ('BlackwellGeneralGemm', [])
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        a: str = "bf16",
        b: str = "bf16",
        d: str = "bf16",
        arch: str = "sm_100a",
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
        _require_choices(groups, group_by, relayout, promote)
        require_options(None, fusion)
        require_load(load)
        self.m, self.n, self.k = (_size(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
        self.batches = 1 if batch is None else _size("batch", batch)
        if config is not None:
            fusion = fusion or (config.fusion if config.fusion.uses_terms else None)
        self._relayout = relayout
        self._given_config = config
        self._promote = 0
        self._arch = arch if config is None else config.arch
        wanted = fusion or Fusion(activation=activation, gated=bool(gated), expression=expression)  # type: ignore[arg-type]
        self.problem = Problem(
            m=max(self.m, 1), n=max(self.n, 1), k=max(self.k, 1), a=a, b=b, d=d, a_major=a_major, b_major=b_major, form="one" if batch is None else "batch"  # type: ignore[arg-type]
        )  # fmt: skip
        self.config = self._configured(self.problem, wanted, direct=False)
        self.configured = config is not None
        self.load, self.deterministic = load, deterministic
        self._variants: dict[Any, GeneralGemm] = {}
        self._maps = {}
        self._calls = None
        self.seconds = {}

    def _configured(self, problem: Problem, fusion: Fusion, direct: bool) -> GemmConfig:
        """The configuration for a problem and what is fused: the caller's, or chosen. Raises ConfigError."""
        if self._given_config is None:
            return select(problem, self._arch, fusion=fusion, direct=direct, batches=max(self.batches, 1))
        given = self._given_config.replace(problem=problem, fusion=fusion)
        return (given.replace(store="direct") if direct else given).require_valid()

    @property
    def workspace_bytes(self) -> int:
        """Bytes of device memory that a launch holds beside its arrays: none."""
        return 0

    def division(self, sms: int = SMS) -> Division:
        """Raises ConfigError: sums of one tile are not divided among CTAs here."""
        raise ConfigError(
            (
                Violation(
                    parameter="split_kind",
                    value=repr(self.config.split.kind),
                    rule="is a parameter of the Hopper kernels",
                    fix="grid() says what is launched",
                ),
            )
        )

    def variant(self, fusion: Fusion, a_major: str, b_major: str, direct: bool) -> BlackwellGeneralGemm:
        """The GEMM with the kernel for this mixture; itself, if that is its own. Kept."""
        direct = direct and self.config.epilogue.store == "tma"
        own = (self.config.fusion, self.problem.a_major, self.problem.b_major)
        if (fusion, a_major, b_major) == own and not direct:
            return self
        key = (fusion, a_major, b_major, direct)
        found = self._variants.get(key)
        if found is None:
            made = object.__new__(type(self))
            made.__dict__.update({name: value for name, value in vars(self).items() if name not in _KEPT_OUT})
            made.problem = dataclasses.replace(self.problem, a_major=a_major, b_major=b_major)  # type: ignore[arg-type]
            made.config = made._configured(made.problem, fusion, direct)
            made._variants, made._maps, made.seconds = {}, {}, {}
            # Of two threads that come at once the first one's is kept.
            found = self._variants.setdefault(key, made)
        assert isinstance(found, BlackwellGeneralGemm)
        return found

    def _major_of(self, operand: Operand) -> tuple[str, bool]:
        """The major in which the kernel reads this operand, and whether it must be copied for that."""
        own = self.problem.a_major if operand.name == "a" else self.problem.b_major
        readable = ("k",) if operand.dtype in PACKED else ("k", "mn")
        majors = (own,) if self._given_config is not None else (own, *(major for major in readable if major != own))
        for major in majors:
            if major in readable and operand.contiguous(major):
                why = operand.misaligned(major)
                if why:
                    _tell_once(
                        f"{operand.name}: {why} (TMA); it is copied to padded rows before each launch, which takes time"
                    )
                return major, bool(why)
        if self._relayout == "copy" and operand.dtype not in PACKED:
            return own, True
        axes = "(M, K)" if operand.name == "a" else "(N, K)"
        library = "np" if operand.tensor.on_host else "xp"
        if operand.dtype in PACKED:
            raise OperandError(
                f"{operand.name}: the bytes of a row of {operand.dtype} must be neighbours (strides {operand.tensor.strides}); "
                f"{library}.ascontiguousarray({operand.name}) makes them so"
            )
        if operand.major:
            reason = f"is {operand.major.upper()}-major, and this kernel reads it {own.upper()}-major"
        else:
            reason = f"has neither dimension of {axes} contiguous (strides {operand.tensor.strides})"
        copy = f"ascontiguousarray({operand.name})" if own == "k" else f"ascontiguousarray({operand.name}.T).T"
        raise OperandError(
            f'{operand.name}: {reason}; relayout="copy" copies it on the device before each launch, {library}.{copy} once'
        )

    def _collector(self, tensor_of: Callable[[Any, str], Tensor]) -> BlackwellCollector:
        return BlackwellCollector(self, tensor_of)

    def maps_for(self, a: Operand, b: Operand, d: Tensor) -> Any:
        """The tensor maps of a launch on these."""
        size = d.itemsize
        row = d.strides[-2] * size if self.m > 1 else copies.padded_pitch(self.columns, size) * size
        several = self.batches > 1
        (a_row, a_batch), (b_row, b_batch) = a.pitches(self.problem.a_major), b.pitches(self.problem.b_major)
        return self.derivation.tensor_maps(
            max(self.m, 1),
            max(self.n, 1),
            a.shape[2],
            a_row_bytes=a_row,
            b_row_bytes=b_row,
            d_row_bytes=row,
            batches=self.batches,
            a_batch_bytes=0 if several and a.shape[0] == 1 else a_batch,
            b_batch_bytes=0 if several and b.shape[0] == 1 else b_batch,
            d_batch_bytes=d.strides[0] * size if several and len(d.shape) == 3 else row * max(self.m, 1),
        )

    def arguments_beside(self, given: Given, encoded: Callable[[TensorMap, Tensor], Any]) -> list[Any]:
        """The kernel's arguments between the operands' tensor maps and D's, ``encoded`` making one of a map: none here."""
        return []

    # ---- on a GPU -----------------------------------------------------------------------------------------------------

    def bind(  # type: ignore[override]
        self, a: Any, b: Any, out: Any = None, dependent: bool = False, workspace: Any = None, **others: Any
    ) -> BlackwellGeneralBound:
        """The launch for these arrays, prepared. ``others``: c, bias, alpha, beta, aux, amax, scale_a, scale_b, scale_d."""
        return BlackwellGeneralBound(self, self.collect(of_device, a, b, out, others), a, out, dependent)

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
        """Runs this kernel's PTX on the emulator, after the copies that its operands need (their PTX too); see
        :meth:`Gemm.emulate`. D starts with every byte 0xff, so an element that is not written shows.
        """
        from .emulator import EmulationError, emulate_ptx

        if isinstance(sms, bool) or not isinstance(sms, int | np.integer) or sms < 1:
            raise ValueError(f"sms={sms!r}: must be a whole number of multiprocessors, from 1 up; a B200 has {SMS}")
        given = self.collect(of_numpy, a, b, out, others)
        kernel, copied = self.kernel_for(given)
        d = given.out or empty(self.shape_d, self.problem.d, given.a.tensor)
        if self.empty_result:
            return GemmEmulation(d=d.array, races=(), conflicts=(), timeline=None, seconds=0.0, result=None)  # type: ignore[arg-type]
        operands = [kernel._emulated_operand(one, copied, seed) for one in (given.a, given.b)]
        assert isinstance(kernel, BlackwellGeneralGemm)
        start = time.perf_counter()
        try:
            result = emulate_ptx(
                kernel.ptx,
                KERNEL_NAME,
                kernel.grid(int(sms)),
                (kernel.threads, 1, 1),
                kernel.emulated_arguments(given, operands[0], operands[1], d, int(sms)),
                cluster=(kernel.cluster_ctas, 1, 1),
                shared=kernel.derivation.shared_bytes,
                seed=seed,
                strict=strict,
                numerics=numerics,
                timeline=timeline,
                progress=progress,
            )
        except EmulationError as error:
            error.args = (legend(kernel.derivation, str(error)), *error.args[1:])
            raise
        seconds = time.perf_counter() - start
        self.seconds["run"] = seconds
        result = dataclasses.replace(result, races=placed(kernel.derivation, result.races))
        return GemmEmulation(
            d=d.array,
            races=result.races,
            conflicts=result.bank_conflicts,
            timeline=result.timeline,
            seconds=seconds,
            result=result,
        )

    def emulated_arguments(self, given: Given, a: Operand, b: Operand, d: Tensor, sms: int = SMS) -> list[Any]:
        """The kernel's arguments as the emulator takes them."""
        from .emulator import TensorMapArgument
        from .emulator.launch import StructArgument

        maps = self.maps_for(a, b, d)
        arguments: list[Any] = [
            TensorMapArgument(maps.a, a.tensor.raw),
            TensorMapArgument(maps.b, b.tensor.raw),
            *self.arguments_beside(given, lambda tensor_map, tensor: TensorMapArgument(tensor_map, tensor.raw)),
            bytes(128) if maps.d is None else TensorMapArgument(maps.d, d.raw),
            bytes(128) if maps.d_tail is None else TensorMapArgument(maps.d_tail, d.raw),
            d.raw,
            *self.sizes_for(a, d),
        ]
        if uses_terms(self.config):
            struct = packed(self.numbers_for(given, d), {}).tobytes()
            pointers = {pointer_offset(name): tensor.raw for name, tensor in given.pointers.items()}
            arguments.append(StructArgument(struct, pointers))
        return arguments


class NoWorkspace:
    """What a launch holds beside its arrays: nothing, of whatever memory a caller gives for it."""

    memory = Memory(Sizes(0, 0, 0))


class BlackwellGeneralBound(GeneralBound):
    """The launch of one GEMM on given arrays; see :class:`.general_bind.GeneralBound`."""

    def __init__(self, gemm: BlackwellGeneralGemm, given: Given, a: Any, out: Any, dependent: bool):
        from .launch import DevicePointer
        from .launch_arrays import family_of
        from .launch_packed import Launches, PackedLaunch

        kernel, copied = gemm.kernel_for(given)
        assert isinstance(kernel, BlackwellGeneralGemm)
        self._given, self._out = given, out
        self._family = family_of(a if out is None else out)
        self.d = given.out or empty(gemm.shape_d, gemm.problem.d, given.a.tensor)
        self.workspace: Any = NoWorkspace()
        self.launch = Launches()
        if gemm.empty_result:
            return
        launches = self.launch.launches
        operands = [self._operand(kernel, one, copied, launches) for one in (given.a, given.b)]
        self.launch.kept = [
            one.tensor.array for one, own in zip(operands, (given.a, given.b), strict=True) if one is not own
        ]
        self._operands = operands
        left, right = operands
        maps, d = kernel.maps_for(left, right, self.d), self.d
        unused = np.zeros(1, dtype="V128")
        arguments: tuple[Any, ...] = (
            _encoded(maps.a, left.tensor.address),
            _encoded(maps.b, right.tensor.address),
            *kernel.arguments_beside(given, lambda tensor_map, tensor: _encoded(tensor_map, tensor.address)),
            unused if maps.d is None else _encoded(maps.d, d.address),
            unused if maps.d_tail is None else _encoded(maps.d_tail, d.address),
            DevicePointer(d.address),
            *kernel.sizes_for(left, d),
        )
        if uses_terms(kernel.config):
            pointers = {name: tensor.address for name, tensor in given.pointers.items()}
            arguments = (*arguments, packed(kernel.numbers_for(given, d), pointers))
        grid = kernel.grid(_multiprocessors())
        launches.append(PackedLaunch(kernel.kernel, grid, (kernel.threads, 1, 1), arguments, dependent))


def _require_choices(groups: object, group_by: str, relayout: str, promote: object) -> None:
    """Raises ConfigError for what these kernels do not have."""
    found = []
    if groups is not None:
        rule = "groups have no Blackwell kernel yet"
        found.append(Violation(parameter="groups", value=groups, rule=rule, fix="one launch each, or arch='sm_90a'"))
    if group_by != "m":
        found.append(Violation(parameter="group_by", value=repr(group_by), rule="groups have no Blackwell kernel yet"))
    if promote:
        rule = "sums are float32 in tensor memory, with nothing to be promoted to"
        found.append(Violation(parameter="promote", value=promote, rule=rule, fix="leave it at 0"))
    if relayout not in ("refuse", "copy"):
        found.append(Violation(parameter="relayout", value=repr(relayout), rule="must be 'refuse' or 'copy'"))
    if found:
        raise ConfigError(tuple(found))
