"""From one self-contained CUDA source to PTX and a cubin that may be used: compiled, judged by the assembler's log,
and cached.

DESIGN's rule is applied here: what the assembler says about serialised or silently repaired wgmma, an ignored
setmaxnreg, spills and stack frames fails the build. Nothing here needs a GPU. This module does not know what any
kernel computes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from . import nvrtc
from .cache import Cache

# Spills are not in NVRTC's log unless asked for; -lineinfo makes the PTX name the source line of every instruction.
DEFAULT_OPTIONS = ("--ptxas-options=-v", "--ptxas-options=--warn-on-spills", "-lineinfo")

# The assembler reports these at level "info". C7508: setmaxnreg ignored. C7510 to C7520: wgmma serialised, or a wait
# or an arrive injected. The numbers moved between releases (13.0 says C7520 where 13.5 says C7519), hence the wording
# as well.
_COMPLAINT = re.compile(
    r"\(C75(?:08|1\d|20)\)|Potential Performance Loss|is injected in|Registers are spilled|'setmaxnreg' ignored"
)
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")


class BuildError(ValueError):
    """The program compiled, but the assembler's log says that it must not be used. ``lines`` are its words, ``log``
    all of it.
    """

    def __init__(self, message: str, *, lines: tuple[str, ...], log: str) -> None:
        super().__init__(message)
        self.lines = lines
        self.log = log


@dataclass(frozen=True)
class KernelResources:
    """What one kernel uses, as the assembler counted it: registers a thread, named barriers, and bytes of the rest."""

    name: str
    registers: int
    barriers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class Build:
    """A usable program. ``cached`` tells whether it came from the disk, ``seconds`` what this call took of the
    compiler.

    ``folder`` is where the cache keeps kernel.cu, kernel.ptx, kernel.cubin and log.txt (None when nothing was cached).
    ``complaints`` is empty unless the build was made with strict=False.
    """

    arch: str
    options: tuple[str, ...]
    ptx: str
    cubin: bytes
    log: str
    compiler: str
    kernels: tuple[KernelResources, ...]
    complaints: tuple[str, ...]
    seconds: float
    cached: bool
    folder: Path | None

    @property
    def cubin_path(self) -> Path | None:
        """The cubin as a file, which is what CuPy's RawModule(path=...) loads; None when nothing was cached."""
        return None if self.folder is None else self.folder / "kernel.cubin"

    def kernel(self, name: str) -> KernelResources:
        """The resources of one kernel; KeyError names those there are."""
        for resources in self.kernels:
            if resources.name == name:
                return resources
        raise KeyError(
            f"no kernel {name!r} in this build; there are: {', '.join(k.name for k in self.kernels) or 'none'}"
        )


def complaints(log: str) -> tuple[str, ...]:
    """The lines of an assembler's log which fail a build: C7508, C7510 to C7520, spills, stack frames. Empty is good.

    >>> complaints("ptxas info    : Used 30 registers, used 0 barriers")
    ()
    >>> complaints("ptxas         .     400 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads")
    ('ptxas         .     400 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads',)
    """
    found = []
    for line in log.splitlines():
        figures = _STACK.search(line)
        if _COMPLAINT.search(line) or (figures and any(int(figure) for figure in figures.groups())):
            found.append(line.strip())
    return tuple(found)


def resources(log: str) -> tuple[KernelResources, ...]:
    """Registers, barriers, static shared memory, stack and spills of each kernel in an assembler's log (made with -v).

    >>> log = '''ptxas info    : Compiling entry function 'k' for 'sm_90a'
    ... ptxas info    : Function properties for k
    ... ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    ... ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes smem'''
    >>> resources(log)[0].registers, resources(log)[0].static_shared_bytes
    (168, 1024)
    """
    found: list[KernelResources] = []
    entry, described = "", ""
    stack = (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, described, stack = match[1], match[1], (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            described = match[1]
        elif (match := _STACK.search(line)) and described == entry:
            stack = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and entry:
            barriers, shared = _BARRIERS.search(line), _SHARED.search(line)
            counted = (int(barriers[1]) if barriers else 0, int(shared[1]) if shared else 0)
            found.append(KernelResources(entry, int(match[1]), *counted, *stack))
            entry = ""
    return tuple(found)


def _judge(log: str, name: str, arch: str) -> None:
    lines = complaints(log)
    if lines:
        shown = "\n  ".join(lines[:12]) + (f"\n  and {len(lines) - 12} more" if len(lines) > 12 else "")
        raise BuildError(
            f"{name} for {arch} compiled, but the assembler's log forbids its use (serialised or repaired wgmma, "
            f"ignored setmaxnreg, spills or a stack frame):\n  {shown}",
            lines=lines,
            log=log,
        )


def build(
    source: str,
    arch: str = "sm_90a",
    options: Sequence[str] = (),
    *,
    name: str = "kernel.cu",
    cache: Cache | None = None,
    use_cache: bool = True,
    strict: bool = True,
) -> Build:
    """Compile ``source`` for ``arch`` or take it from the disk cache, and refuse it if the assembler's log says so.

    ``options`` are added to DEFAULT_OPTIONS; ``name`` is the file name in line information and messages.
    ``strict=False`` returns a build with its ``complaints`` instead of raising. Raises CompileError (the program is
    wrong), BuildError (the assembler's complaints), NvrtcMissingError, and CacheError where the cache's folder cannot
    be written.

    >>> made = build('extern "C" __global__ void nothing() {}', use_cache=False)
    >>> made.kernels[0].name, made.complaints, made.cached
    ('nothing', (), False)
    """
    everything = (*DEFAULT_OPTIONS, *options)
    if not use_cache:
        return _fresh(source, arch, everything, name, strict)
    store = cache if cache is not None else Cache()
    compiler = nvrtc.library().identity
    key = store.key(source, arch, everything, name, compiler)
    entry = store.load(key)
    if entry is None:
        with store.locked(key):
            entry = store.load(key)  # another process may have made it while this one waited
            if entry is None:
                made = _fresh(source, arch, everything, name, strict)
                files = {"kernel.cu": source.encode(), "kernel.ptx": made.ptx.encode(), "kernel.cubin": made.cubin}
                facts = {"name": name, "arch": arch, "options": list(everything), "compiler": compiler}
                folder = store.save(key, {**files, "log.txt": made.log.encode()}, facts)
                return replace(made, folder=folder)
    log = entry.files["log.txt"].decode()
    if strict:
        _judge(log, name, arch)
    return Build(
        arch=arch,
        options=everything,
        ptx=entry.files["kernel.ptx"].decode(),
        cubin=entry.files["kernel.cubin"],
        log=log,
        compiler=compiler,
        kernels=resources(log),
        complaints=complaints(log),
        seconds=0.0,
        cached=True,
        folder=entry.folder,
    )


def _fresh(source: str, arch: str, options: tuple[str, ...], name: str, strict: bool) -> Build:
    made = nvrtc.compile(source, arch, options, name)
    if strict:
        _judge(made.log, name, arch)
    return Build(
        arch=arch,
        options=options,
        ptx=made.ptx,
        cubin=made.cubin,
        log=made.log,
        compiler=nvrtc.library().identity,
        kernels=resources(made.log),
        complaints=complaints(made.log),
        seconds=made.seconds,
        cached=False,
        folder=None,
    )
