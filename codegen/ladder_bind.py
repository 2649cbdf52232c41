"""One rung of the ladder and its device arrays, tied together once, then launched as often as wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import bind
from .bind import OperandError

if TYPE_CHECKING:
    from .ladder import Rung
    from .launch_arrays import DeviceMatrix
    from .launch_packed import PackedLaunch


class BoundRung:
    """The launch of one rung on given arrays, which are kept alive; their contents are read at each launch."""

    def __init__(self, rung: Rung, a: Any, b: Any, out: Any = None):
        from .launch import DevicePointer, import_cupy
        from .launch_arrays import family_of
        from .launch_packed import PackedLaunch

        cupy = import_cupy()
        self._family = family_of(a if out is None else out)
        self._out = out
        self._operands = matrices = _operands(rung, a, b, out)
        table = rung.order_table()
        self._table = cupy.asarray(table) if table.size else None
        given: dict[str, Any] = {name: DevicePointer(matrix.address) for name, matrix in matrices.items()}
        given |= {f"{name}_row_stride": np.uint64(bind._row_bytes(matrix) // 2) for name, matrix in matrices.items()}
        given["order"] = self._table
        unused = np.zeros(1, dtype="V128")
        arguments = rung.arguments(
            given, lambda item, name: unused if item is None else bind._encoded(item, matrices[name].address)
        )
        # The table is filled on the current stream, and any stream may launch.
        cupy.cuda.get_current_stream().synchronize()
        self.launch: PackedLaunch = PackedLaunch(
            rung.kernel, rung.grid(bind._multiprocessors()), (rung.threads, 1, 1), arguments
        )
        """``launch(stream=None)`` launches and returns nothing."""
        self.launch.kept = self._table

    def __call__(self, stream: Any = None) -> Any:
        """Launches and returns the result, in the caller's kind of array."""
        from .launch_arrays import give_back

        self.launch(stream)
        if self._out is None:
            return give_back(self._operands["d"].array, self._family)
        if self._family == "numpy":
            self._out[...] = give_back(self._operands["d"].array, "numpy")
        return self._out


def _operands(rung: Rung, a: Any, b: Any, out: Any) -> dict[str, DeviceMatrix]:
    """The operands as device matrices by name ("a", "b", "d"), checked. Raises OperandError."""
    from .launch import import_cupy
    from .launch_arrays import adopt

    found = {}
    for name, array, rows in (("a", a, rung.m), ("b", b, rung.n)):
        operand = adopt(array, name)
        rung.problem.check_operand(name, operand.shape, bind._numpy_name(operand.dtype), rows)
        if "k" not in operand.majors:
            raise OperandError(bind.wrong_major(name, "xp.ascontiguousarray"))
        bind._check_rows(name, operand)
        found[name] = operand
    if out is None:
        out = import_cupy().empty((rung.m, rung.n), dtype=bind._bfloat16())
    d = adopt(out, "out")
    if d.shape != (rung.m, rung.n) or d.dtype != "bf16" or "k" not in d.majors:
        raise OperandError(
            f"out: shape {d.shape}, {d.dtype}, contiguous along {d.majors}; this rung writes rows of {(rung.m, rung.n)}, bf16"
        )
    if rung.derivation.staged:
        bind._check_rows("out", d)
    found["d"] = d
    return found
