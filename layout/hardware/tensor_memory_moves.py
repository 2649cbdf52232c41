"""tcgen05.ld, tcgen05.st and tcgen05.cp: which lane and column each register or shared-memory bit meets, as Layouts.

Sources: PTX ISA 9.1 sections 9.7.16.8.1 (ld, st) and 9.7.16.9.2 (cp); layouts printed by CuTe's headers. Layouts of
bits follow CuTe: a logical bit numbers a row's bits first, then lanes; ``value_id`` maps it to lane * 2^21 + bit of the
lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..algebra import size
from ..core import Layout
from .errors import HardwareError, whole
from .shared_memory import WARP
from .tensor_memory import CELL_BITS, LANE

_LANE_BITS = LANE * CELL_BITS  # 2^21: one lane in bits
REPEATS = (1, 2, 4, 8, 16, 32, 64, 128)
# Shape: (lanes, bits of a row x1, registers x1, largest repeat). 16x32bx2 reads two pieces of 32 bits a row.
LOAD_SHAPES = {
    "32x32b": (32, 32, 1, 128),
    "16x64b": (16, 64, 1, 128),
    "16x128b": (16, 128, 2, 64),
    "16x256b": (16, 256, 4, 32),
    "16x32bx2": (16, 64, 1, 128),
}


@dataclass(frozen=True)
class TensorMemoryAccess:
    """A tcgen05.ld or tcgen05.st of one warp.

    ``value_id``: logical bit -> lane * 2^21 + bit; ``registers``: (thread, register bit) -> logical bit; ``packed``:
    .pack::16b (ld) or .unpack::16b (st), where 16 bits of every 32-bit column travel.
    """

    shape: str
    repeat: int
    packed: bool
    value_id: Layout
    registers: Layout

    @property
    def register_count(self) -> int:
        """32-bit registers a thread."""
        return LOAD_SHAPES[self.shape][2] * self.repeat

    @property
    def columns(self) -> int:
        """32-bit columns a lane (for 16x32bx2 those of both pieces)."""
        width = LOAD_SHAPES[self.shape][1] * self.repeat // CELL_BITS
        return width * 2 if self.packed else width

    @property
    def memory(self) -> Layout:
        """(thread, bit) -> logical bit on the side of tensor memory: the warp as a whole sees all of it, as CuTe has it.

        >>> print(tensor_memory_access("16x64b").memory)
        (32,1024):(0,1)
        """
        return Layout((WARP, int(size(self.value_id))), (0, 1))

    def place(self, thread: int, register: int, split: int | None = None) -> tuple[int, int]:
        """(lane, column) of a thread's register, from the address given; of a packed one, of its low half.

        ``split``: the second half's column offset in 16x32bx2 (immHalfSplitoff), needed for that shape alone.

        >>> load = tensor_memory_access("16x256b", 1)
        >>> load.place(5, 1), load.place(5, 2)
        ((1, 3), (9, 2))
        """
        if not (0 <= thread < WARP and 0 <= register < self.register_count):
            raise HardwareError(f"thread {thread}, register {register}: 32 threads of {self.register_count} registers")
        bit = int(self.value_id(int(self.registers(thread, register * CELL_BITS))))
        lane, column = bit // _LANE_BITS, bit % _LANE_BITS // CELL_BITS
        if self.shape == "16x32bx2":
            if split is None:
                raise HardwareError("16x32bx2 needs split, the column offset of its second half")
            half = self.columns // 2
            column = column - half + split if column >= half else column
        return lane, column

    def __str__(self) -> str:
        return f"value id {self.value_id}, registers {self.registers} (bits)"


def tensor_memory_access(shape: str, repeat: int = 1, packed: bool = False) -> TensorMemoryAccess:
    """tcgen05.ld and tcgen05.st of that shape and repeat (.x1 to .x128). Raises HardwareError with what is allowed.

    >>> print(tensor_memory_access("16x128b", 2).registers)
    ((4,8),(32,2,2)):((32,256),(1,2048,128))
    """
    if shape not in LOAD_SHAPES:
        raise HardwareError(f"shape {shape!r}: must be one of {', '.join(LOAD_SHAPES)}")
    lanes, width, _, largest = LOAD_SHAPES[shape]
    if whole("repeat", repeat) not in REPEATS or repeat > largest:
        raise HardwareError(f"repeat x{repeat}: {shape} takes x1, x2, x4 .. x{largest}")
    row = width * repeat
    if packed:
        # 16 bits of each 32-bit column: twice the columns for the same registers.
        value_id = Layout(((16, row // 16), lanes), ((1, CELL_BITS), _LANE_BITS))
    else:
        value_id = Layout((row, lanes), (1, _LANE_BITS))
    return TensorMemoryAccess(shape, repeat, packed, value_id, _registers(shape, repeat, row))


def _registers(shape: str, repeat: int, row: int) -> Layout:
    def repeated(*modes: tuple[int, int]) -> tuple[object, object]:
        kept = [mode for mode in modes if mode[0] > 1]
        if len(kept) == 1:
            return kept[0]
        return tuple(s for s, _ in kept), tuple(d for _, d in kept)

    threads: object
    thread_strides: object
    if shape == "32x32b":
        threads, thread_strides = 32, row
        values = repeated((row, 1))
    elif shape == "16x32bx2":
        threads, thread_strides = (16, 2), (row, row // 2)
        values = repeated((row // 2, 1))
    elif shape == "16x64b":
        threads, thread_strides = (2, 2, 8), (8 * row, 32, row)
        values = repeated((32, 1), (repeat, 64))
    elif shape == "16x128b":
        threads, thread_strides = (4, 8), (32, row)
        values = repeated((32, 1), (2, 8 * row), (repeat, 128))
    else:
        threads, thread_strides = (4, 8), (64, row)
        values = repeated((64, 1), (2, 8 * row), (repeat, 256))
    return Layout((threads, values[0]), (thread_strides, values[1]))


@dataclass(frozen=True)
class TensorMemoryCopy:
    """A tcgen05.cp. ``value_id``: logical bit -> lane * 2^21 + bit; ``source``: (1, bits) -> logical bit read from
    shared memory, ``destination`` those written (repeated rows differ); ``multicast`` the qualifier PTX wants, "" for
    none.
    """

    shape: str
    multicast: str
    value_id: Layout
    source: Layout
    destination: Layout

    @property
    def name(self) -> str:
        """The shape with its qualifier."""
        return self.shape + (f".{self.multicast}" if self.multicast else "")

    def __str__(self) -> str:
        return f"value id {self.value_id}, source {self.source}, destination {self.destination} (bits)"


def tensor_memory_copies() -> tuple[TensorMemoryCopy, ...]:
    """All tcgen05.cp (PTX 9.7.16.9.2).

    >>> [copy.name for copy in tensor_memory_copies()][:3]
    ['128x256b', '128x128b', '4x256b']
    """
    lane = _LANE_BITS
    every = Layout((1, 16384), (0, 1))
    # 4x256b: rows go to lanes 0, 32, 64 and 96. warpx4: 32 rows, repeated in each quarter.
    four = Layout((1, (4, 256)), (0, (32, 128)))
    return (
        TensorMemoryCopy(
            "128x256b", "", Layout((128, 256), (lane, 1)), Layout((1, 32768), (0, 1)), Layout((1, 32768), (0, 1))
        ),
        TensorMemoryCopy("128x128b", "", Layout((128, 128), (lane, 1)), every, every),
        TensorMemoryCopy("4x256b", "", Layout((128, 256), (lane, 1)), four, four),
        TensorMemoryCopy(
            "32x128b",
            "warpx4",
            Layout((32, 128, 4), (lane, 1, 32 * lane)),
            Layout((1, (32, 128, 4)), (0, (1, 32, 0))),
            every,
        ),
        TensorMemoryCopy(
            "64x128b",
            "warpx2::02_13",
            Layout((64, 128, 2), (lane, 1, 64 * lane)),
            Layout((1, (64, 128, 2)), (0, (1, 64, 0))),
            every,
        ),
        TensorMemoryCopy(
            "64x128b",
            "warpx2::01_23",
            Layout((32, 128, 2, 2), (lane, 1, 64 * lane, 32 * lane)),
            Layout((1, (32, 128, 2, 2)), (0, (1, 32, 4096, 0))),
            every,
        ),
    )


def tensor_memory_copy(shape: str, multicast: str = "") -> TensorMemoryCopy:
    """That tcgen05.cp. Raises HardwareError with those there are; 64x128b and 32x128b need their qualifier.

    >>> print(tensor_memory_copy("32x128b", "warpx4").value_id)
    (32,128,4):(2097152,1,67108864)
    """
    for copy in tensor_memory_copies():
        if (copy.shape, copy.multicast) == (shape, multicast):
            return copy
    near = [copy.name for copy in tensor_memory_copies() if copy.shape == shape]
    names = near or [copy.name for copy in tensor_memory_copies()]
    raise HardwareError(f"tcgen05.cp {shape}{'.' + multicast if multicast else ''}: there is {', '.join(names)}")
