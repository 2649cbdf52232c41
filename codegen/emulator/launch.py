"""One launch: the kernel's arguments as bytes, its memory, and the run. The public `emulate_ptx`."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.hardware import TensorMap

from .banks import BankCounter
from .checks import Checks
from .errors import EmulationError
from .faults import MachineError
from .global_memory import GlobalMemory
from .global_races import GlobalRaces, OrderedRaces, orders_blocks
from .matrix import Numerics
from .ops_tensor_map import DeviceTensorMaps
from .ordering import Order
from .progress import Progress, Watch
from .ptx import TYPE_BYTES
from .ptx_text import parse_number
from .report import EmulationResult
from .scheduler import Machine
from .tensor_copy import BoundTensorMap
from .tensor_log import TensorLog
from .translate import PARAM_WINDOW, Parameter, Program, program_of

if TYPE_CHECKING:
    from .cta import Cta
    from .timeline import RecordingMachine

MAX_SHARED = 232_448
"""Bytes of shared memory that a block of compute capability 9.0 may use: 227 KiB (CUDA programming guide, table of limits)."""


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map passed by value: what it says, and the array it describes (`byte_offset` from the array's first element).

    >>> import numpy as np
    >>> array = np.zeros((128, 64), np.float16)
    >>> TensorMapArgument(TensorMap("f16", (64, 128), (128,), (64, 64), "128B"), array).map.box_bytes
    8192
    """

    map: TensorMap
    array: NDArray[Any]
    byte_offset: int = 0


@dataclass(frozen=True)
class StructArgument:
    """A struct passed by value that holds pointers: its bytes, and by byte offset the arrays whose addresses go there.

    >>> StructArgument(bytes(16), {8: np.zeros(4, np.float32)}).data.hex()
    '00000000000000000000000000000000'
    """

    data: bytes
    pointers: Mapping[int, NDArray[Any]]


Argument = Any
"""ndarray | numpy scalar | int | TensorMapArgument | StructArgument | bytes | None"""


class Launch:
    """Everything that the blocks of one launch share."""

    def __init__(
        self,
        program: Program,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        args: Sequence[Argument],
        cluster: Sequence[int] | int,
        shared: int,
        seed: int,
        strict: bool,
        numerics: str,
        check_races: bool,
    ) -> None:
        if numerics not in ("float32", "hardware"):
            raise EmulationError(f"numerics={numerics!r}; allowed are 'float32' and 'hardware'")
        self.program = program
        self.grid = _three("grid", grid)
        self.block = _three("block", block)
        required = program.function.directives.get("reqnctapercluster")
        self.cluster = _three("cluster", cluster)
        if required:
            fixed = (*required, 1, 1)[:3]
            if self.cluster == (1, 1, 1):
                self.cluster = (int(fixed[0]), int(fixed[1]), int(fixed[2]))
            elif self.cluster != tuple(fixed):
                raise EmulationError(f"cluster {self.cluster}: the kernel requires {tuple(fixed)} (.reqnctapercluster)")
        self.explicit_cluster = self.cluster != (1, 1, 1) or bool(required)
        self.shared = shared
        self.seed = seed
        self.strict = strict
        self.lenient = not strict
        self.check_races = check_races
        self.numerics: Numerics = "hardware" if numerics == "hardware" else "float32"
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.shared_bytes = max(program.dynamic_shared + shared - 1024 if shared else program.static_shared - 1024, 0)
        self._check()
        self.registers_per_thread = registers_at_launch(self._bound_threads(), program.largest_register_count)
        self.memory = GlobalMemory()
        self.tensor_maps: dict[int, BoundTensorMap] = {}
        self.device_maps = DeviceTensorMaps()
        self.parameters = self._pack(args)
        self.symbols = self._variables()
        self._read: dict[tuple[int, int], int] = {}
        self.banks = BankCounter(program)
        self.checks = Checks(self)
        several = self.grid[0] * self.grid[1] * self.grid[2] > 1
        ordered = any(orders_blocks(item) for item in program.instructions) if several else False
        self.order = Order(self) if check_races and ordered else None
        """What warps know of each other through global memory, where blocks may be ordered by it."""
        self.global_races: GlobalRaces | None = None
        if check_races and several:
            self.global_races = GlobalRaces(self) if self.order is None else OrderedRaces(self, self.order)

    # -- validity ----------------------------------------------------------------------------------------------------------------

    def _bound_threads(self) -> int:
        directives = self.program.function.directives
        found = directives.get("reqntid") or directives.get("maxntid")
        return int(np.prod(found)) if found else self.threads

    def _check(self) -> None:
        directives = self.program.function.directives
        if not 1 <= self.threads <= 1024:
            raise EmulationError(f"block {self.block}: {self.threads} threads; allowed are 1 to 1024")
        bound = directives.get("maxntid")
        if bound and self.threads > int(np.prod(bound)):
            raise EmulationError(
                f"block {self.block}: {self.threads} threads, but the kernel was compiled for at most {int(np.prod(bound))} (.maxntid)"
            )
        exact = directives.get("reqntid")
        if exact and self.threads != int(np.prod(exact)):
            raise EmulationError(f"block {self.block}: the kernel requires {int(np.prod(exact))} threads (.reqntid)")
        for axis, (blocks, size) in enumerate(zip(self.grid, self.cluster, strict=True)):
            if blocks % size:
                raise EmulationError(f"grid {self.grid}: dimension {axis} is not a multiple of the cluster's {size}")
        blocks = self.cluster[0] * self.cluster[1] * self.cluster[2]
        if blocks > 16:
            raise EmulationError(
                f"cluster {self.cluster}: {blocks} blocks; at most 8 (16 with the non-portable attribute)"
            )
        if self.shared < 0 or self.shared_bytes > MAX_SHARED:
            raise EmulationError(
                f"shared={self.shared}: the block would use {self.shared_bytes} bytes of shared memory; {MAX_SHARED} are there"
            )

    # -- arguments ---------------------------------------------------------------------------------------------------------------

    def _pack(self, args: Sequence[Argument]) -> bytes:
        parameters = self.program.parameters
        if len(args) != len(parameters):
            names = ", ".join(f"{p.name} (.{p.type}, {p.size} bytes)" for p in parameters)
            raise EmulationError(
                f"{len(args)} arguments for {len(parameters)} parameters of {self.program.kernel}: {names or 'none'}"
            )
        size = parameters[-1].offset + parameters[-1].size if parameters else 0
        block = bytearray(size)
        for position, (argument, parameter) in enumerate(zip(args, parameters, strict=True)):
            data = self._bytes(argument, parameter, position)
            block[parameter.offset : parameter.offset + len(data)] = data
        return bytes(block)

    def _bytes(self, argument: Argument, parameter: Parameter, position: int) -> bytes:
        where = f"argument {position} ({parameter.name}, .{parameter.type}, {parameter.size} bytes)"
        if isinstance(argument, TensorMapArgument):
            if parameter.size != 128:
                raise EmulationError(f"{where}: a tensor map is passed by value in 128 bytes")
            address = self.memory.register(argument.array, parameter.name) + argument.byte_offset
            problems = argument.map.problems()
            if problems:
                raise EmulationError(f"{where}: the driver would refuse this tensor map: {problems[0]}")
            self.tensor_maps[PARAM_WINDOW + parameter.offset] = BoundTensorMap(
                argument.map, self.memory, address, address - argument.byte_offset
            )
            return bytes(128)
        if isinstance(argument, StructArgument):
            data = bytearray(self._sized(bytes(argument.data), parameter, where))
            for offset, array in argument.pointers.items():
                if not 0 <= offset <= len(data) - 8:
                    raise EmulationError(f"{where}: a pointer at byte {offset} does not fit")
                data[offset : offset + 8] = struct.pack("<Q", self.memory.register(array, f"{parameter.name}+{offset}"))
            return bytes(data)
        if argument is None:
            return self._sized(bytes(parameter.size if parameter.size == 8 else 0), parameter, where)
        if isinstance(argument, bytes | bytearray):
            return self._sized(bytes(argument), parameter, where)
        if isinstance(argument, np.ndarray):
            if argument.ndim == 0 and parameter.size != 8:
                return self._sized(argument.tobytes(), parameter, where)
            if parameter.size != 8:
                raise EmulationError(
                    f"{where}: an array is passed as a pointer of 8 bytes; pass a numpy scalar for a value"
                )
            return struct.pack("<Q", self.memory.register(argument, parameter.name))
        if isinstance(argument, np.generic):
            # Untyped parameters (.b32) take either kind; half precision travels as .u16.
            if parameter.size < 4:
                return self._sized(argument.tobytes(), parameter, where)
            if (parameter.type[0] in "us" and argument.dtype.kind == "f") or (
                parameter.type[0] == "f" and argument.dtype.kind in "iu"
            ):
                raise EmulationError(
                    f"{where}: {argument!r} is a number of another kind; its bits would be read as .{parameter.type}"
                )
            return self._sized(argument.tobytes(), parameter, where)
        if isinstance(argument, bool | int | float):
            return self._number(argument, parameter, where)
        raise EmulationError(
            f"{where}: {type(argument).__name__} is not understood; pass a numpy array (pointer), numpy scalar, bytes, TensorMapArgument or None"
        )

    def _sized(self, data: bytes, parameter: Parameter, where: str) -> bytes:
        if len(data) != parameter.size:
            raise EmulationError(
                f"{where}: {len(data)} bytes were given; use a numpy scalar or bytes of {parameter.size} bytes"
            )
        return data

    def _number(self, value: float, parameter: Parameter, where: str) -> bytes:
        kind = parameter.type
        if kind in ("f32", "f64"):
            return struct.pack("<f" if kind == "f32" else "<d", value)
        if isinstance(value, float) or kind[0] not in "us" or parameter.size != TYPE_BYTES.get(kind):
            raise EmulationError(
                f"{where}: the width of the Python number {value!r} is not known; pass a numpy scalar such as numpy.float32({value!r})"
            )
        bits = 8 * parameter.size
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise EmulationError(f"{where}: {value} does not fit {bits} bits")
        return (int(value) & ((1 << bits) - 1)).to_bytes(parameter.size, "little")

    def parameter(self, offset: int, width: int) -> int:
        """An unsigned integer of the parameter block."""
        found = self._read.get((offset, width))
        if found is None:
            if offset + width > len(self.parameters):
                raise EmulationError(
                    f"{width} bytes at offset {offset} of the parameters, which have {len(self.parameters)} bytes"
                )
            found = self._read[offset, width] = int.from_bytes(self.parameters[offset : offset + width], "little")
        return found

    def tensor_map(self, address: int, cta: Cta) -> BoundTensorMap:
        """The tensor map at a generic address, that a block uses: a parameter, or 128 bytes of global memory."""
        found = self.tensor_maps.get(address)
        if found is None:
            if PARAM_WINDOW <= address < PARAM_WINDOW + len(self.parameters):
                raise EmulationError(
                    f"no tensor map at generic address {address:#x}; a tensor map must be a TensorMapArgument of a __grid_constant__ parameter"
                )
            found = self.device_maps.find(self, address, cta)
        return found

    def _variables(self) -> dict[str, int]:
        """Memory for the module's global and constant variables; their addresses by name."""
        found: dict[str, int] = {}
        for variable in self.program.variables:
            data = np.zeros(max(variable.size or 0, 1), np.uint8)
            if variable.init is not None:
                self._initialise(data, variable.type, variable.init, found)
            found[variable.name] = self.memory.register(data, variable.name)
        return found

    def _initialise(self, data: NDArray[np.uint8], kind: str, text: str, symbols: dict[str, int]) -> None:
        width = TYPE_BYTES[kind]
        words = [word.strip() for word in text.replace("{", " ").replace("}", " ").split(",")]
        for position, word in enumerate(words):
            if not word:
                continue
            if word in symbols:
                value = symbols[word]
            elif word[0].isdigit() or word[0] in "-+":
                number = parse_number(word)
                if isinstance(number, float):
                    number = int.from_bytes(struct.pack("<f" if width == 4 else "<d", number), "little")
                value = number
            else:
                raise EmulationError(f"initial value {word!r} of a variable is not understood")
            raw = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            data[position * width : (position + 1) * width] = np.frombuffer(raw, np.uint8)


def registers_at_launch(threads: int, largest: int = 256) -> int:
    """Registers a thread that ptxas gives a kernel whose largest setmaxnreg is `largest`: its share of the 65,536 in eights, but not
    more than `largest` (seen with ptxas 13.0 at 128 to 512 threads and 120, 152 and 232 registers).

    >>> registers_at_launch(384), registers_at_launch(416), registers_at_launch(512), registers_at_launch(256, 232)
    (168, 128, 128, 232)
    """
    warpgroups = -(-threads // 128)
    return min(largest, 256, 65_536 // (128 * warpgroups) // 8 * 8)


def _three(name: str, value: Sequence[int] | int) -> tuple[int, int, int]:
    parts = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(parts) <= 3 or not all(isinstance(part, int | np.integer) and part >= 1 for part in parts):
        raise EmulationError(f"{name}={value!r}: must be one to three positive integers")
    full = (*(int(part) for part in parts), 1, 1)
    return full[0], full[1], full[2]


def recording_machine(launch: Launch) -> RecordingMachine:
    """A machine that records a timeline; its modules are imported only when one is asked for."""
    from .timeline import RecordingMachine

    return RecordingMachine(launch)


def emulate_ptx(
    ptx: str,
    kernel: str,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence[Argument],
    cluster: Sequence[int] | int = (1, 1, 1),
    shared: int = 0,
    seed: int = 0,
    strict: bool = True,
    numerics: str = "float32",
    check_races: bool = True,
    timeline: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> EmulationResult:
    """Executes a kernel's PTX and checks it. Arrays among the arguments are read and written in place.

    Args:
        ptx: the PTX text (sm_90a, sm_100a, sm_103a; what is Blackwell's was never compared with a Blackwell).
        kernel: the name of the `.entry`.
        grid, block, cluster: sizes in blocks, threads, blocks; one to three integers.
        args: in the order of the parameters: a numpy array is a pointer to it, a numpy scalar goes by value, a Python number by the
            parameter's declared type, TensorMapArgument and bytes by value, None is a null pointer.
        shared: bytes of dynamic shared memory.
        seed: 0 completes asynchronous work in the order of issue; any other number chooses a legal order at random.
        strict: every documented fence and wait is demanded; otherwise what NVIDIA's compilers rely on passes.
        numerics: "float32" sums wgmma and tcgen05.mma in float32, "hardware" gives the bits of an H200, and for tcgen05.mma those of a published model.
        check_races: whether accesses are checked for races (slower).
        timeline: whether events are recorded and given modelled times (slower): the result's `timeline`; also its `tensor_memory`, without times.
        progress: called about five times a second with a Progress.

    Returns:
        An EmulationResult: instructions, races, bank conflicts for each source line, seconds.

    Raises:
        UnsupportedInstruction: for an instruction or modifier that is not modelled, with its source line.
        DeadlockError: when no thread can go on, with who waits for what.
        EmulationError: for what the hardware forbids: bad addresses, barrier misuse, broken rules of wgmma.

    >>> text = ".version 8.0 .target sm_90a .address_size 64 .visible .entry k(.param .u64 p) { .reg .b64 %a; ld.param.u64 %a, [p]; st.global.u32 [%a], 7; ret; }"
    >>> out = np.zeros(1, np.uint32)
    >>> emulate_ptx(text, "k", 1, 32, [out]).instructions, int(out[0])
    (3, 7)
    """
    started = time.perf_counter()
    program = program_of(ptx, kernel)
    translated = time.perf_counter()
    try:
        launch = Launch(program, grid, block, args, cluster, shared, seed, strict, numerics, check_races)
    except MachineError as fault:
        raise EmulationError(str(fault)) from fault
    recorder = recording_machine(launch) if timeline else None
    machine = Machine(launch) if recorder is None else recorder
    if timeline:
        machine.tensor_log = TensorLog()
    if progress is not None:
        machine.watch = Watch(machine, progress)
    begun = time.perf_counter()
    machine.run()
    seconds = time.perf_counter() - begun
    return EmulationResult(
        kernel=kernel,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        instructions=machine.instructions,
        seconds=seconds,
        translate_seconds=translated - started,
        seed=seed,
        strict=strict,
        numerics=numerics,
        races=launch.checks.races(),
        bank_conflicts=launch.banks.records(),
        timeline=None if recorder is None else recorder.timeline(),
        tensor_memory=() if machine.tensor_log is None else machine.tensor_log.events(),
    )
