"""NVRTC, NVIDIA's run-time compiler, called through ctypes as it lies in its wheel: CUDA C++ in, PTX and a cubin out.

Nothing here needs a GPU or a driver. The library is loaded when it is first asked for, so importing this module is
free. This module knows nothing about kernels, caches or which complaints of the assembler matter: ``build`` does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST_VERSION = (12, 9)
FIRST_REFUSED_VERSION = (14, 0)

# The wheels' folders below site-packages, newest toolkit first: nvidia-cuda-nvrtc 13.x, then nvidia-cuda-nvrtc-cu12.
_WHEEL_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
_LIBRARY_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


class NvrtcError(RuntimeError):
    """NVRTC could not be loaded, or one of its calls failed for a reason other than the program it was given."""


class NvrtcMissingError(NvrtcError):
    """No NVRTC between 12.9 and 14 was found; the message names the pip command that brings one."""


class CompileError(ValueError):
    """NVRTC refused the program. ``log`` is all it said, ``arch`` and ``options`` are what it was given."""

    def __init__(self, message: str, *, log: str, arch: str, options: tuple[str, ...]) -> None:
        super().__init__(message)
        self.log = log
        self.arch = arch
        self.options = options


@dataclass(frozen=True)
class Compilation:
    """What one NVRTC program gave: the PTX, the cubin, the log of compiler and assembler, and how long it took
    (seconds).
    """

    arch: str
    options: tuple[str, ...]
    ptx: str
    cubin: bytes
    log: str
    version: tuple[int, int]
    seconds: float


@dataclass(frozen=True)
class Library:
    """A loaded NVRTC: where it lies, its version as (major, minor), and ``identity``, which tells two builds apart."""

    path: str
    version: tuple[int, int]
    identity: str
    handle: ctypes.CDLL


def _wheel_libraries() -> Iterator[Path]:
    for folder in _WHEEL_FOLDERS:
        for entry in sys.path:
            base = Path(entry or ".") / folder
            for name in _LIBRARY_NAMES:
                if (base / name).is_file():
                    yield base / name


def _toolkit_libraries() -> Iterator[Path]:
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        root = os.environ.get(variable)
        for folder in ("lib64", "lib"):
            for name in _LIBRARY_NAMES:
                if root and (Path(root) / folder / name).is_file():
                    yield Path(root) / folder / name


def _candidates() -> Iterator[str]:
    chosen = os.environ.get("STRIDEWRIGHT_NVRTC")
    if chosen:
        yield str(Path(chosen).resolve()) if "/" in chosen else chosen
        return
    yield from (str(path) for path in _wheel_libraries())
    yield from (str(path) for path in _toolkit_libraries())
    yield from _LIBRARY_NAMES  # whatever the dynamic linker knows


def _missing_message(refused: Sequence[str]) -> str:
    found = ("; found but not usable: " + "; ".join(refused)) if refused else ""
    if platform.system() != "Linux":
        return (
            f"there is no NVRTC wheel for {platform.system()}, so nothing can be compiled here{found}. What needs no "
            "compiler still works: layouts, `stridewright banks`, and `stridewright emulate` on PTX made elsewhere"
        )
    return (
        "NVRTC (>= 12.9, < 14), the compiler of the generated CUDA, is not installed"
        f"{found}. Install it with: pip install 'stridewright[nvrtc]'   (or: pip install 'nvidia-cuda-nvrtc>=13.0,<14')"
    )


def _load_builtins(folder: Path) -> None:
    # libnvrtc opens libnvrtc-builtins by its bare name; loaded globally beforehand, it is found outside the linker's
    # path too.
    for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)


def _open(candidate: str) -> Library:
    path = Path(candidate)
    if path.is_absolute():
        _load_builtins(path.parent)
    handle = ctypes.CDLL(candidate)
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(handle, handle.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    version = (major.value, minor.value)
    # nvrtcVersion does not tell patch releases apart; the size of the library does.
    size = path.stat().st_size if path.is_absolute() else 0
    return Library(candidate, version, f"nvrtc-{major.value}.{minor.value}-{size}", handle)


@functools.cache
def library() -> Library:
    """The NVRTC in use: of the wheels the newest, else a toolkit's. ``STRIDEWRIGHT_NVRTC=/path/to/libnvrtc.so.13``
    chooses one.

    Raises NvrtcMissingError, whose message names the pip command, where there is none of a supported version.

    >>> (12, 9) <= library().version < (14, 0)
    True
    """
    refused = []
    for candidate in _candidates():
        try:
            found = _open(candidate)
        except (OSError, AttributeError) as error:
            if Path(candidate).is_absolute():
                refused.append(f"{candidate} ({error})")
            continue
        if OLDEST_VERSION <= found.version < FIRST_REFUSED_VERSION:
            return found
        refused.append(f"{candidate} (version {found.version[0]}.{found.version[1]})")
    raise NvrtcMissingError(_missing_message(refused))


def _check(handle: ctypes.CDLL, status: int, call: str) -> None:
    if status != 0:
        handle.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NvrtcError(f"{call} failed: {handle.nvrtcGetErrorString(status).decode()} ({status})")


def _fetch(handle: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(handle, getattr(handle, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    _check(handle, getattr(handle, f"nvrtcGet{what}")(program, buffer), f"nvrtcGet{what}")
    return buffer.raw[: size.value]


def _fetch_text(handle: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    # Text comes with a closing NUL, a cubin without: cutting a byte off both is how cubins lose their last one.
    return _fetch(handle, program, what).rstrip(b"\0").decode("utf-8", "replace")


def supported_architectures() -> tuple[str, ...]:
    """The real architectures this NVRTC compiles for, as ``sm_NN``, ascending; those from 90 on also exist as
    ``sm_NNa``.

    >>> "sm_90" in supported_architectures()
    True
    """
    handle = library().handle
    count = ctypes.c_int()
    _check(handle, handle.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    numbers = (ctypes.c_int * count.value)()
    _check(handle, handle.nvrtcGetSupportedArchs(numbers), "nvrtcGetSupportedArchs")
    return tuple(f"sm_{number}" for number in numbers)


def _check_request(source: str, arch: str, options: tuple[str, ...]) -> None:
    if not isinstance(source, str):
        raise TypeError(f"source: must be a str of CUDA C++, not {type(source).__name__}")
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise ValueError(
            f"arch={arch!r}: must name a real architecture such as 'sm_90a' (Hopper) or 'sm_100a' (Blackwell)"
        )
    for option in options:
        if re.match(r"--?(gpu-)?arch", option):
            raise ValueError(f"options: {option!r} names an architecture a second time; pass it as arch={arch!r} alone")
    if arch.rstrip("af") not in supported_architectures():
        known = ", ".join(supported_architectures())
        version = ".".join(map(str, library().version))
        raise ValueError(f"arch={arch!r}: NVRTC {version} does not know it; it compiles for {known}")


def _meant(log: str, arch: str) -> str:
    """A hint where the assembler refuses instructions that another family has, "" elsewhere."""
    for instructions, family, other in (("tcgen05.", "sm_10", "sm_100a"), ("wgmma.", "sm_90", "sm_90a")):
        if f"Instruction '{instructions}" in log and not arch.startswith(family):
            return f"; {instructions[:-1]} is for {other}: build(source, arch={other!r})"
    return ""


def compile(  # the name every reader expects; the builtin is not used in this module
    source: str, arch: str = "sm_90a", options: Sequence[str] = (), name: str = "kernel.cu"
) -> Compilation:
    """Compile one self-contained CUDA C++ source to PTX and to a cubin, in one NVRTC program; no GPU, no driver, no
    headers.

    ``name`` is the file name that -lineinfo records. Returns a Compilation; ``seconds`` is the compiler's own time.
    Raises CompileError with the log where the program is wrong, ValueError for an architecture this NVRTC does not
    know, NvrtcMissingError without NVRTC. Source: NVRTC documentation, chapters "Basic usage" and "Supported compile
    options".

    >>> made = compile('extern "C" __global__ void nothing() {}', "sm_90a")
    >>> ".entry nothing" in made.ptx, made.cubin[:4]
    (True, b'\\x7fELF')
    """
    given = tuple(options)
    _check_request(source, arch, given)
    loaded = library()
    handle = loaded.handle
    program = ctypes.c_void_p()
    text = ctypes.c_char_p(source.encode())
    created = handle.nvrtcCreateProgram(ctypes.byref(program), text, ctypes.c_char_p(name.encode()), 0, None, None)
    _check(handle, created, "nvrtcCreateProgram")
    try:
        everything = (f"--gpu-architecture={arch}", *given)
        words = (ctypes.c_char_p * len(everything))(*(word.encode() for word in everything))
        start = time.perf_counter()
        status = handle.nvrtcCompileProgram(program, len(everything), words)
        seconds = time.perf_counter() - start
        log = _fetch_text(handle, program, "ProgramLog")
        if status != 0:
            handle.nvrtcGetErrorString.restype = ctypes.c_char_p
            reason = handle.nvrtcGetErrorString(status).decode()
            shown = "\n".join(log.strip().splitlines()[:40])
            hint = _meant(log, arch)
            raise CompileError(f"{name} for {arch}: {reason}{hint}\n{shown}", log=log, arch=arch, options=given)
        ptx = _fetch_text(handle, program, "PTX")
        cubin = _fetch(handle, program, "CUBIN")
    finally:
        handle.nvrtcDestroyProgram(ctypes.byref(program))
    return Compilation(arch, given, ptx, cubin, log, loaded.version, seconds)
