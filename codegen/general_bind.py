"""A general GEMM and its device arrays, tied together once: copies that operands need, then the launch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stridewright.kernels.hopper_rules import element_bytes, uses_terms

from . import relayout as copies
from .bind import _encoded, _multiprocessors, kernel_arguments
from .bind import packed as packed_launch
from .launch_packed import Launches
from .overlap import place_of
from .tensors import empty
from .terms import packed
from .workspace import Workspace, require_array

if TYPE_CHECKING:
    from .general import GeneralGemm
    from .given import Given, Operand


class GeneralBound:
    """The launch of one GEMM on given arrays. ``bound(stream=None)`` launches it and returns the result in the caller's
    kind of array. The arrays are kept alive; their contents are read at each launch.
    """

    def __init__(self, gemm: GeneralGemm, given: Given, a: Any, out: Any, dependent: bool, workspace: Any = None):
        from .launch_arrays import family_of

        require_array(workspace)
        kernel, copied = gemm.kernel_for(given)
        self._given, self._out = given, out
        self._family = family_of(a if out is None else out)
        self.d = given.out or empty(gemm.shape_d, gemm.problem.d, given.a.tensor)
        self.workspace: Workspace | None = None
        self.launch = Launches()
        """``launch(stream=None)`` launches, the copies of operands first, and returns nothing."""
        if gemm.empty_result:
            return
        launches = self.launch.launches
        operands = [self._operand(kernel, one, copied, launches) for one in (given.a, given.b)]
        self.launch.kept = [operands[0].tensor.array if given.a.tensor is not operands[0].tensor else None]
        self.launch.kept += [operands[1].tensor.array if given.b.tensor is not operands[1].tensor else None]
        self._operands = operands
        division = kernel.division(_multiprocessors())
        self.workspace = own = Workspace(kernel, division, workspace)
        own.require_apart((name, place_of(one)) for name, one in {**given.arrays, "out": self.d}.items())
        arguments, terms = self._arguments(kernel, operands[0], operands[1])
        launch = packed_launch(kernel.kernel, division.ctas, kernel.config.threads, arguments, own, terms, dependent)
        launches.append(launch)

    def _operand(self, gemm: GeneralGemm, operand: Operand, copied: dict[str, str], launches: list[Any]) -> Operand:
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

    def _arguments(self, kernel: GeneralGemm, a: Operand, b: Operand) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The kernel's arguments before those of the workspace, and after them."""
        d, given = self.d, self._given
        maps = kernel.maps_for(a, b, d)
        first, second = (b, a) if kernel.config.schedule.swap else (a, b)
        encoded = [
            None if tensor_map is None else _encoded(tensor_map, address)
            for tensor_map, address in (
                (maps.a, first.tensor.address),
                (maps.b, second.tensor.address),
                (maps.d, d.address),
                (maps.d_tail, d.address),
            )
        ]
        pitch, *sizes = kernel.sizes_for(a, d)
        arguments = kernel_arguments(encoded, d.address, int(pitch), [int(size) for size in sizes])
        if not uses_terms(kernel.config):
            return arguments, ()
        pointers = {name: tensor.address for name, tensor in given.pointers.items()}
        return arguments, (packed(kernel.numbers_for(given, d), pointers),)

    def __call__(self, stream: Any = None) -> Any:
        from .launch_arrays import give_back, launch_in_order

        tensors = (self._given.a.tensor, self._given.b.tensor, *self._given.pointers.values())
        chosen = launch_in_order(self.launch, {one.family for one in tensors} | {self._family}, self._typed(), stream)
        for written, array in self._given.copied_back.items():
            array[...] = give_back(self._given.arrays[written].array, "numpy", chosen).view(array.dtype)
        if self._out is None:
            given = give_back(self._typed(), self._family, chosen)
            # PyTorch has 8-bit floats, which came out as bytes.
            name = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}.get(self.d.dtype)
            return given.view(getattr(sys.modules["torch"], name)) if name and self._family == "torch" else given
        return self._out

    def _typed(self) -> Any:
        """D as CuPy has it: 8-bit floats as bytes."""
        return self.d.array
