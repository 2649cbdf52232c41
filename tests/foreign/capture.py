"""Runs a compiled CuTe DSL host function with no driver, to learn what it would have launched.

The DSL's object files call the CUDA runtime through a few `_cuda*` wrappers. Linked against the wrappers below, which succeed without doing
anything, the host code computes its tensor maps, its scheduler's parameters and the launch configuration as on a machine with a GPU, and the
launch itself calls back here. Needs a C compiler; nothing is executed on a device.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationResult, StructArgument, TensorMapArgument, emulate_ptx
from stridewright.layout.hardware import TensorMap, encode_image
from stridewright.layout.hardware.tensor_map_image import PACKED_CODES, read_words

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

ENTRY = "foreign_host"
"""The name under which the host function is exported."""

_WRAPPERS = """
typedef void (*hook_t)(void *configuration, void **arguments);
static hook_t hook;
void set_hook(hook_t given) { hook = given; }
int _cudaLaunchKernelEx(void *configuration, void *kernel, void **arguments) { hook(configuration, arguments); return 0; }
int _cudaDeviceGetAttribute(int *value, int attribute, int device) { *value = 232448; return 0; }
int _cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) { *value = 0; return 0; }
int _cudaFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int _cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) { return 0; }
int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaSetDevice(int device) { return 0; }
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) { *kernel = library; return 0; }
int _cudaLibraryLoadData(void) { return 0; }
int cuda_dialect_init_library_once(void) { return 0; }
void cuda_dialect_unload_library_once(void) {}
"""

_CLUSTER_ATTRIBUTE = 4
"""cudaLaunchAttributeClusterDimension (driver_types.h)."""

_DLPACK_TYPES = {
    "bf16": (4, 16), "f16": (2, 16), "f32": (2, 32), "e4m3": (10, 8), "e5m2": (12, 8), "s8": (0, 8), "s32": (0, 32), "e8m0": (14, 8),
    "e2m1x2": (17, 4, 2), "u8": (1, 8),
}  # fmt: skip
"""(code, bits, elements if not 1) of dlpack.h: kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLFloat8_e4m3fn 10, kDLFloat8_e5m2 12, kDLFloat8_e8m0fnu 14,
kDLFloat4_e2m1fn 17, two in a byte."""

_CUDA_DEVICE = 2


@contextlib.contextmanager
def compiling_for(arch: str) -> Iterator[None]:
    """Within it the CuTe DSL and QuACK compile for an architecture, such as "sm_100a"."""
    from cutlass.cutlass_dsl import CuTeDSL

    settings = CuTeDSL._get_dsl().envar
    words = {"CUTE_DSL_ARCH": arch, "QUACK_ARCH": arch.removeprefix("sm_").rstrip("af")}
    before, held = settings.arch, {name: os.environ.get(name) for name in words}
    settings.arch = arch
    os.environ.update(words)
    try:
        yield
    finally:
        settings.arch = before
        for name, value in held.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class Launch:
    """What a host function asked the driver for: sizes, and the bytes of each parameter."""

    ptx: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    parameters: tuple[bytes, ...]

    def tensor_maps(self) -> list[tuple[TensorMap, int]]:
        """(map, global address) of each parameter that is a tensor map, in order."""
        return [decode_tensor_map(data) for data in self.parameters if len(data) == 128]

    def emulate(
        self, arrays: Mapping[int, NDArray[Any]], edit: Callable[[str], str] = str, **options: Any
    ) -> EmulationResult:
        """The kernel's run on the emulator, after `edit` of its PTX. `arrays` holds the array behind each address that the host code was given."""
        arguments: list[Any] = []
        for data in self.parameters:
            if len(data) == 128:
                arguments.append(_tensor_map_argument(*decode_tensor_map(data), arrays))
            else:
                words = {at: int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - 7, 8)}
                pointers = {at: arrays[word] for at, word in words.items() if word in arrays}
                arguments.append(StructArgument(data, pointers) if pointers else data)
        return emulate_ptx(
            edit(self.ptx),
            self.kernel,
            self.grid,
            self.block,
            arguments,
            cluster=self.cluster,
            shared=self.shared,
            **options,
        )


def _tensor_map_argument(tensor_map: TensorMap, address: int, arrays: Mapping[int, NDArray[Any]]) -> TensorMapArgument:
    """A map starts at its array, or one whole dimension before it.

    The latter is how maps of rows of varying number are made: a row is named by its distance from the end, so that those past the end are
    out of bounds.
    """
    starts = [0, *(-size * step for size, step in zip(tensor_map.shape[1:], tensor_map.strides_bytes, strict=True))]
    start, array = next((start, arrays[address - start]) for start in starts if address - start in arrays)
    return TensorMapArgument(tensor_map, array, start)


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _ManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _LaunchConfiguration(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    ]


class _LaunchAttribute(ctypes.Structure):
    """cudaLaunchAttribute: an identifier, and a value of 64 bytes."""

    _fields_ = [("identifier", ctypes.c_int32), ("padding", ctypes.c_int32), ("value", ctypes.c_uint32 * 16)]


_Hook = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

_kept: list[Any] = []
"""DLPack consumers may hold a tensor for as long as they like: these are never freed."""


class DeviceTensor:
    """A tensor on a device that is not there: shape and strides in elements, and an address to tell it by."""

    def __init__(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> None:
        code, bits, lanes = (*_DLPACK_TYPES[dtype], 1)[:3]
        rank = len(shape)
        sizes, steps = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*strides)
        tensor = _Tensor(address, _Device(_CUDA_DEVICE, 0), rank, code, bits, lanes, sizes, steps, 0)
        self._managed = _ManagedTensor(tensor, None, None)
        _kept.append((self._managed, sizes, steps))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA_DEVICE, 0

    def __dlpack__(self, **_: Any) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._managed), b"dltensor", None)


class HostFunction:
    """A CuTe DSL function compiled with TVM-FFI, linked against a runtime that launches nothing."""

    def __init__(self, compiled: Any, folder: Path) -> None:
        import tvm_ffi

        assert COMPILER is not None
        self.ptx: str = compiled.__ptx__
        source, binary, library = folder / "wrappers.c", folder / "host.o", folder / "host.so"
        source.write_text(_WRAPPERS)
        compiled.export_to_c(str(binary), function_name=ENTRY)
        # -Bsymbolic: the DSL's own runtime library is already loaded and has the same names.
        command = [COMPILER, "-shared", "-fPIC", "-w", "-Wl,-Bsymbolic", "-o", str(library), str(source), str(binary)]
        subprocess.run(command, check=True, capture_output=True)
        self._module = tvm_ffi.load_module(str(library))
        self._set_hook: Callable[[Any], None] = ctypes.CDLL(str(library)).set_hook

    def launch(self, *arguments: Any) -> Launch:
        """Calls the host function; returns what it launched. DeviceTensors stand for tensors on a GPU."""
        import tvm_ffi

        found: list[Launch] = []
        kernel, sizes = parameters_of(self.ptx)

        def hook(configuration: int, values: int) -> None:
            found.append(_launch(self.ptx, kernel, sizes, configuration, values))

        callback = _Hook(hook)
        self._set_hook(callback)

        def ready(item: Any) -> Any:
            if isinstance(item, DeviceTensor):
                return tvm_ffi.from_dlpack(item)
            return tuple(map(ready, item)) if isinstance(item, tuple) else item

        self._module[ENTRY](*map(ready, arguments))
        (launch,) = found
        return launch


def _launch(ptx: str, kernel: str, sizes: Sequence[int], configuration: int, values: int) -> Launch:
    asked = _LaunchConfiguration.from_address(configuration)
    pointers = (ctypes.c_void_p * len(sizes)).from_address(values)
    cluster = (1, 1, 1)
    for i in range(asked.count):
        attribute = _LaunchAttribute.from_address(asked.attributes + i * ctypes.sizeof(_LaunchAttribute))
        if attribute.identifier == _CLUSTER_ATTRIBUTE:
            cluster = tuple(attribute.value[:3])
    data = tuple(ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True))
    return Launch(ptx, kernel, tuple(asked.grid), tuple(asked.block), cluster, asked.shared, data)


def parameters_of(ptx: str) -> tuple[str, list[int]]:
    """The kernel's name and the bytes of each of its parameters.

    >>> parameters_of(".visible .entry k(.param .u64 .ptr a, .param .align 64 .b8 m[128]) { ret; }")
    ('k', [8, 128])
    """
    found = re.search(r"\.entry\s+([\w$]+)\s*\((.*?)\)", ptx, re.DOTALL)
    assert found is not None
    sizes = []
    for text in found[2].split(","):
        kind = re.search(r"\.[busf](\d+)\b", text)
        count = re.search(r"\[(\d+)\]", text)
        assert kind is not None
        sizes.append(int(kind[1]) // 8 * (int(count[1]) if count else 1))
    return found[1], sizes


_HEAD_BITS_OF_THE_DSL = 1 << 1 | 1 << 21
"""Bits of a map's third word that the DSL's encoder sets and the measured driver left clear; no field that is known lies there."""

_FIELD_WORDS = 15


def decode_tensor_map(image: bytes) -> tuple[TensorMap, int]:
    """The map and global address in 128 bytes that a CuTe DSL host function wrote; only the first 60 are defined.

    Encoding the result again must give the same bytes, where there is a driver that encodes the type.
    """
    words = np.frombuffer(image, "<u4").tolist()
    words[2] &= ~_HEAD_BITS_OF_THE_DSL
    tensor_map, address = read_words(words)
    if words[2] >> 7 & 15 in PACKED_CODES.values():
        return tensor_map, address  # no driver for Hopper writes this type: there is nothing to compare with
    again = np.frombuffer(encode_image(tensor_map, address), "<u4").tolist()
    if again[:_FIELD_WORDS] != words[:_FIELD_WORDS]:
        raise ValueError(f"these 60 bytes are not {tensor_map}: {image[:60].hex()}")
    return tensor_map, address
