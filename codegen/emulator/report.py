"""What an emulation returns: plain frozen dataclasses that go into JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import SourcePlace


@dataclass(frozen=True)
class Access:
    """One side of a race: who, what, where in the source."""

    agent: str
    operation: str
    place: str


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders, or a rule of asynchronous work that was broken.

    `kind`: "write after write", "read after write", "write after read", or a rule's name. `address`: the first address in question, of `space`: "shared"
    (as its block sees it), "global" or "tensor" (lane << 16 | column; of 16 lanes the first). `missing`: the fence or wait that would order them. `count`: how often it was seen.
    `where`: what stands at the address, where the kernel's layouts are known.
    """

    kind: str
    first: Access
    second: Access
    block: tuple[int, int, int]
    address: int
    missing: str
    count: int = 1
    space: str = "shared"
    where: str = ""

    def _at(self) -> str:
        if self.space == "tensor":
            return f"lane {self.address >> 16}, column {self.address & 0xFFFF} of the tensor memory"
        return f"{self.space} address {self.address:#x}"

    def __str__(self) -> str:
        return (
            f"{self.kind} at {self._at()}{f' ({self.where})' if self.where else ''} of block {self.block}: {self.second.operation} by {self.second.agent} at "
            f"{self.second.place} is not ordered after {self.first.operation} by {self.first.agent} at {self.first.place}; "
            f"missing: {self.missing}"
        )


@dataclass(frozen=True)
class BankConflicts:
    """Shared-memory accesses of one instruction, summed over warps and executions.

    `wavefronts` as counted by the bank model of stridewright.layout.banks, `ideal` the least for these accesses, `accesses` executions by a warp.
    """

    file: str
    line: int
    ptx_line: int
    kind: str
    bytes: int
    accesses: int
    wavefronts: int
    ideal: int

    @property
    def ratio(self) -> float:
        """Wavefronts over the ideal number; 1.0 is free of conflicts."""
        return self.wavefronts / self.ideal if self.ideal else 1.0

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the ideal number."""
        return self.wavefronts - self.ideal


@dataclass(frozen=True)
class TensorEvent:
    """Something that used tensor memory, from its issue until it was done.

    `what`: "alloc", "dealloc", "mma", "cp", "ld" or "st". `issued` and `done` say in which order things happened: both count the beginnings and ends of these
    events, which have no times (`done` -1: it never was). An mma, cp is done when its bits have moved, an ld or st when it was waited for. `lanes`: of
    the first, and how many; `fresh`: an mma that does not accumulate.
    """

    block: tuple[int, int, int]
    what: str
    issued: int
    done: int
    lanes: tuple[int, int]
    column: int
    columns: int
    who: str
    place: str
    fresh: bool = False


@dataclass(frozen=True)
class EmulationResult:
    """The outcome of a kernel that ran to its end. Output arrays were written in place.

    `instructions`: PTX instructions executed, each once for a group of threads that run together. `seconds`: wall time of the run, without parsing
    and translation, which `translate_seconds` has. `races`: empty if every access was ordered and every rule kept.
    `bank_conflicts`: one record for each instruction that reads or writes shared memory. `tensor_memory`: with a timeline, what was done to tensor memory.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    instructions: int
    seconds: float
    translate_seconds: float
    seed: int
    strict: bool
    numerics: str
    races: tuple[Race, ...] = ()
    bank_conflicts: tuple[BankConflicts, ...] = ()
    timeline: Any = None
    tensor_memory: tuple[TensorEvent, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def conflict_ratio(self) -> float:
        """Wavefronts over ideal ones, over all shared-memory accesses of threads."""
        ideal = sum(record.ideal for record in self.bank_conflicts)
        return sum(record.wavefronts for record in self.bank_conflicts) / ideal if ideal else 1.0

    def to_json(self) -> dict[str, Any]:
        """The result as an object that json.dumps takes."""
        found = asdict(self)
        for record, item in zip(self.bank_conflicts, found["bank_conflicts"], strict=True):
            item["ratio"] = record.ratio
            item["conflicts"] = record.conflicts
        found["timeline"] = None if self.timeline is None else self.timeline.to_json()
        return found

    def __str__(self) -> str:
        lines = [
            f"{self.kernel}: grid {self.grid}, block {self.block}, cluster {self.cluster}; {self.instructions} instructions in {self.seconds:.3f} s, "
            f"seed {self.seed}, {'strict' if self.strict else 'lenient'}, {self.numerics} numerics"
        ]
        lines.append(f"races: {len(self.races) or 'none'}")
        lines.extend(f"  {race}" for race in self.races)
        bad = [record for record in self.bank_conflicts if record.conflicts]
        lines.append(f"bank conflicts: {sum(record.conflicts for record in bad) or 'none'}")
        lines.extend(
            f"  {record.file}:{record.line} (PTX line {record.ptx_line}) {record.kind} of {record.bytes} bytes: {record.wavefronts} wavefronts, "
            f"ideal {record.ideal}, ratio {record.ratio:.2f}"
            for record in bad
        )
        return "\n".join(lines)


def place_text(place: SourcePlace) -> str:
    """A source place in one line."""
    return str(place)
