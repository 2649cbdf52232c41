"""A general GEMM and its device arrays, tied together once: copies that operands need, then the launch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.hopper_rules import element_bytes, uses_terms

from . import relayout as copies
from .bind import Workspace, _encoded, _multiprocessors
from .tensors import empty
from .terms import packed

if TYPE_CHECKING:
    from .general import GeneralGemm
    from .given import Given, Operand
    from .launch_packed import PackedLaunch


class Launches:
    """Launches one after the other, and the copies that they make and read; not the caller's arrays."""

    def __init__(self, launches: list[PackedLaunch]):
        self._launches = launches
        self.kept: list[Any] = []

    def __call__(self, stream: Any = None) -> None:
        for launch in self._launches:
            launch(stream)


class GeneralBound:
    """The launch of one GEMM on given arrays. ``bound(stream=None)`` launches it and returns the result in the caller's
    kind of array. The arrays are kept alive; their contents are read at each launch.
    """

    def __init__(self, gemm: GeneralGemm, given: Given, a: Any, out: Any, dependent: bool):
        from .launch_arrays import family_of
        from .launch_packed import PackedLaunch

        kernel, copied = gemm.kernel_for(given)
        self._given, self._out = given, out
        self._family = family_of(a if out is None else out)
        self.d = given.out or empty(gemm.shape_d, gemm.problem.d, given.a.tensor)
        self.workspace: Workspace | None = None
        launches: list[PackedLaunch] = []
        self.launch = Launches(launches)
        """``launch(stream=None)`` launches, the copies of operands first, and returns nothing."""
        if gemm.empty_result:
            return
        operands = [self._operand(kernel, one, copied, launches) for one in (given.a, given.b)]
        self.launch.kept = [operands[0].tensor.array if given.a.tensor is not operands[0].tensor else None]
        self.launch.kept += [operands[1].tensor.array if given.b.tensor is not operands[1].tensor else None]
        self._operands = operands
        division = kernel.division(_multiprocessors())
        self.workspace = Workspace(kernel, division)
        arguments = self._arguments(kernel, operands[0], operands[1])
        threads = (kernel.config.threads, 1, 1)
        launches.append(PackedLaunch(kernel.kernel, division.ctas, threads, arguments, dependent))

    def _operand(
        self, gemm: GeneralGemm, operand: Operand, copied: dict[str, str], launches: list[PackedLaunch]
    ) -> Operand:
        from .launch import DevicePointer
        from .launch_packed import PackedLaunch

        if gemm.k == 0:
            return gemm.without_k(operand)
        if operand.name not in copied:
            return operand
        copy, shape, strides, pitch = gemm.copy_plan(operand, copied[operand.name])
        source, target = DevicePointer(operand.tensor.address), DevicePointer(copy.tensor.address)
        arguments = copies.arguments(source, target, shape, strides, pitch)
        made = copies.kernel(element_bytes(operand.dtype), gemm.config.arch)
        grid = copies.grid(shape[1], shape[2], shape[0])
        launches.append(PackedLaunch(made, grid, copies.BLOCK, arguments))
        return copy

    def _arguments(self, kernel: GeneralGemm, a: Operand, b: Operand) -> tuple[Any, ...]:
        from .launch import DevicePointer

        assert self.workspace is not None
        d, given = self.d, self._given
        maps = kernel.maps_for(a, b, d)
        first, second = (b, a) if kernel.config.schedule.swap else (a, b)
        unused = np.zeros(1, dtype="V128")
        arguments = (
            _encoded(maps.a, first.tensor.address),
            _encoded(maps.b, second.tensor.address),
            unused if maps.d is None else _encoded(maps.d, d.address),
            unused if maps.d_tail is None else _encoded(maps.d_tail, d.address),
            DevicePointer(d.address),
            *kernel.sizes_for(a, d),
            *self.workspace.arguments,
        )
        if uses_terms(kernel.config):
            pointers = {name: tensor.address for name, tensor in given.pointers.items()}
            arguments = (*arguments, packed(kernel.numbers_for(given, d), pointers))
        return arguments

    def __call__(self, stream: Any = None) -> Any:
        from .launch_arrays import give_back

        self.launch(stream)
        if self._out is None:
            given = give_back(self._typed(), self._family)
            # PyTorch has 8-bit floats, which came out as bytes.
            name = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}.get(self.d.dtype)
            return given.view(getattr(sys.modules["torch"], name)) if name and self._family == "torch" else given
        if self._family == "numpy":
            self._out[...] = give_back(self._typed(), "numpy").view(self._out.dtype)
        return self._out

    def _typed(self) -> Any:
        """D as CuPy has it: 8-bit floats as bytes."""
        return self.d.array
