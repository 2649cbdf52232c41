"""Executes the PTX of Hopper and Blackwell kernels on a model of the chip, with no GPU, and checks it while it runs.

Hopper's part was measured on an H200. Blackwell's (tcgen05, tensor memory) follows PTX ISA 9.1 and CuTe's headers: emulated, never run on hardware.

    emulate_ptx(ptx, kernel, grid, block, args, cluster, shared, seed, strict, numerics, timeline) -> EmulationResult

How it is made: `ptx` reads the text; `translate` writes one Python function for each basic block, with the instruction tables `isa_*`;
`gang` holds threads that execute together; `scheduler` runs gangs in turn; `ops_*` do what instructions do, on the parts of the machine
(`memory`, `mbarrier`, `tensor_copy`, `matrix`, `tmem`, `tcgen05_mma` ..), which know no PTX. `races`, `global_races`, `banks` and `deadlock` watch, `report` has the results.
`ordering` follows what blocks know of one another through atomics and fences on global memory.
`timeline_record` notes events if asked to, `timeline_replay` gives them times by the model in `timeline_model`.
An instruction is added by one function in an isa_* table, and a test.
"""

from __future__ import annotations

from .errors import DeadlockError, EmulationError, ParseError, SourcePlace, UnsupportedInstruction
from .launch import StructArgument, TensorMapArgument, emulate_ptx
from .progress import Progress
from .report import Access, BankConflicts, EmulationResult, Race, TensorEvent
from .translate import kernels_of

__all__ = [
    "Access",
    "BankConflicts",
    "DeadlockError",
    "EmulationError",
    "EmulationResult",
    "ParseError",
    "Progress",
    "Race",
    "SourcePlace",
    "StructArgument",
    "TensorEvent",
    "TensorMapArgument",
    "UnsupportedInstruction",
    "emulate_ptx",
    "kernels_of",
]
