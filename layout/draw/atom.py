"""An instruction's fragment by its name in the table of atoms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import LayoutError
from ..hardware import atoms
from ..hardware.tensor_memory_moves import tensor_memory_access
from .drawing import Drawing
from .fragment import fragment_view, tensor_memory_map, tensor_memory_view
from .grid import extent_of

if TYPE_CHECKING:
    from ..hardware.atom_table import Atom

_MATRIX_COLUMNS = 8  # of ldmatrix, stmatrix and movmatrix: 16-bit values of a row of 16 bytes


def _rows(atom: Atom, operand: str) -> int:
    m, n = atom.shape[0], atom.shape[1]
    return n if operand == "B" else m


def atom_view(name: str, operand: str | None = None) -> Drawing:
    """The fragment of an instruction of ``hardware.atoms``: of wgmma and mma.sync its operand A, B or D (default D), of
    ldmatrix, stmatrix and movmatrix its registers, of tcgen05.ld and .st the lanes and columns, of tcgen05.mma TMEM.

    Raises LayoutError for a name that is not there, with some that are, for an operand it does not have, and for one that is
    read from shared memory, which no thread holds.

    >>> atom_view("mma.m16n8k16.f32.bf16", "A").facts["threads"]
    32
    """
    table = atoms()
    atom = table.get(name)
    if atom is None:
        near = (
            list(atoms(str(name)))
            or [known for known in table if known.startswith(str(name).split(".")[0])]
            or list(table)
        )
        raise LayoutError(
            f"no atom is called {name!r}; there are {', '.join(near[:6])}{' ..' if len(near) > 6 else ''}"
        )
    if name.startswith(("tcgen05.ld", "tcgen05.st")):
        # tcgen05.ld.16x256b.x2.pack::16b
        parts = name.split(".")
        access = tensor_memory_access(parts[2], int(parts[3].removeprefix("x")), len(parts) > 4)
        split = access.columns // 2 if parts[2] == "16x32bx2" else None
        return tensor_memory_view(access, split)
    names = [part for part, _ in atom.layouts]
    chosen = operand or next((part for part in ("registers", "TMEM", "D") if part in names), names[0])
    if chosen not in names:
        raise LayoutError(f"{name} has no operand {chosen!r}: it has {', '.join(names)}")
    layout = atom.layout(chosen)
    title = f"{name}, {chosen}"
    if chosen == "TMEM":
        return tensor_memory_map(layout, title)
    if chosen == "registers":
        return fragment_view(layout, extent_of(layout) // _MATRIX_COLUMNS, title, row_major=_MATRIX_COLUMNS)
    if name.startswith(("wgmma", "mma.")):
        if layout[0].stride == 0:
            raise LayoutError(
                f"{name} reads {chosen} from shared memory: no thread holds it; draw its descriptor, or D"
            )
        return fragment_view(layout, _rows(atom, chosen), title)
    raise LayoutError(f"{name}, {chosen}: {layout} is no fragment of threads; there is {', '.join(names)}")
