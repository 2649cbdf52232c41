"""``gemm(a, b)``, and what a process's first call of it costs: little, where an earlier process multiplied that shape.

To import the algebra, choose a configuration, derive its constants and find its kernel takes a tenth of a second, and
what comes of it is a few numbers: which cubin, what grid, which tensor maps. They are recorded beside the cache of
kernels; the next process reads them and launches. A record serves only the very package, device and shape that it was
made with; whatever does not fit, and every array that is not dense, takes the whole way through ``Gemm``.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import math
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .calls import Calls, Table
from .workspace import Workspace

if TYPE_CHECKING:
    from .gemm import Gemm

_FORMAT = 1
_FOLDER = f"first-{_FORMAT}"
_TUNED = "tuned-*"
_MOST = 256
_ALIGNMENT = 16
"""Bytes: what TMA asks of addresses and pitches (CUDA driver API, cuTensorMapEncodeTiled)."""

_NEEDED = ("name", "shared_bytes", "threads", "ctas", "cluster", "dependent", "swap", "maps", "sizes", "workspace")

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())

_calls: dict[tuple[int, int, int, str], Calls] = {}
_opening: dict[tuple[int, int, int, str], threading.Lock] = {}
"""Held while a shape is called for the first time: of many threads one makes its kernel."""
_changing = threading.RLock()


def _nothing_kept(a: Any, b: Any, out: Any, stream: Any, others: Any = None) -> Any:
    """In place of a table's ``launch`` before there is one."""
    return None


_launch: Callable[..., Any] = _nothing_kept
_launch_with: Callable[..., Any] = _nothing_kept
_table: Table | None = None
"""The launches of all shapes."""


def gemm(a: Any, b: Any, out: Any = None, stream: Any = None, arch: str = "sm_90a", **options: Any) -> Any:
    """``a @ b.T`` on the current GPU for a (M, K) and b (N, K): sizes, types and majors are read from the arrays.

    The Gemm for a shape is made once and kept, and so are its launches. ``options`` are those of :func:`.general_call.multiply`:
    c, bias, activation and more. Raises OperandError, naming both shapes, if the arrays do not go together.
    """
    if arch != "sm_90a":
        from .blackwell_gemm import multiply

        if options:
            from .general_call import multiply as fused

            return fused(a, b, out, stream, arch=arch, **options)
        return multiply(a, b, out, stream, arch)
    if not options:
        if _launch(a, b, out, stream) is not None:
            return out
    elif _launch_with(a, b, out, stream, options) is not None:
        return out
    shape_a: Any = getattr(a, "shape", ())
    shape_b: Any = getattr(b, "shape", ())
    if (
        options
        or len(shape_a) == 3
        or len(shape_b) == 3
        or not (_is_bf16(a) and _is_bf16(b) and (out is None or _is_bf16(out)))
    ):
        from .general_call import multiply as general

        return general(a, b, out, stream, asked=options or None, table=_kept, **options)
    if len(shape_a) != 2 or len(shape_b) != 2 or shape_a[1] != shape_b[1]:
        raise _wrong_shapes(shape_a, shape_b)
    key = (shape_a[0], shape_b[0], shape_a[1], arch)
    calls = _calls.get(key)
    if calls is None:
        return _first(key, a, b, out, stream)
    from .launch_arrays import on_device_of

    with on_device_of(a):
        result = calls(a, b, out, stream)
    return _whole(*key)(a, b, out=out, stream=stream) if result is None else result


def _is_bf16(array: Any) -> bool:
    return str(getattr(array, "dtype", "")).endswith("bfloat16")


def forget() -> None:
    """Makes the next call of every shape choose its configuration anew, as after tuning."""
    global _table, _launch, _launch_with
    with _changing:
        _table, _launch, _launch_with = None, _nothing_kept, _nothing_kept
        _calls.clear()
        _whole.cache_clear()


def _kept() -> Table:
    global _table, _launch, _launch_with
    with _changing:
        if _table is None:
            _table = Table()
            _launch, _launch_with = _table.launch, _table.launch_with
        return _table


def _wrong_shapes(shape_a: Any, shape_b: Any) -> Exception:
    from .bind import OperandError

    shapes = [tuple(int(size) for size in shape) for shape in (shape_a, shape_b)]
    return OperandError(
        f"a has shape {shapes[0]} and b has shape {shapes[1]}: they must be (M, K) and (N, K), for d = a @ b.T; if b is (K, N), pass b.T"
    )


@functools.lru_cache(maxsize=_MOST)
def _whole(m: int, n: int, k: int, arch: str) -> Gemm:
    from .gemm import Gemm

    return Gemm(m, n, k, arch=arch)


def _goes_further(made: Gemm) -> bool:
    """Whether it is more than a plain product: of no elements, or of rows that need a copy."""
    from .general import GeneralGemm

    return isinstance(made, GeneralGemm)


def _first(key: tuple[int, int, int, str], a: Any, b: Any, out: Any, stream: Any) -> Any:
    """A shape's first call in this process: from its record, or the whole way, which leaves one."""
    from .launch_arrays import on_device_of

    with _opening.setdefault(key, threading.Lock()), on_device_of(a):
        calls = _calls.get(key)  # of another thread, which came before
        if calls is None:
            recorded = _from_record(key)
            made = _whole(*key) if recorded is None else None
            if made is not None:
                if _goes_further(made):
                    from .general_call import multiply as general

                    return general(a, b, out, stream, table=_kept)
                made._require_gpu()
            calls = Calls(made or recorded, _kept())
            result = calls(a, b, out, stream)
            if made is not None:
                if result is None:
                    # Arrays of another library: the next ones may be of one whose launches are kept.
                    return made(a, b, out=out, stream=stream)
                _record(made)
            with _changing:
                while len(_calls) >= _MOST:
                    oldest = next(iter(_calls))
                    del _calls[oldest]
                    _opening.pop(oldest, None)
                _calls[key] = calls
        else:
            result = calls(a, b, out, stream)
    return _whole(*key)(a, b, out=out, stream=stream) if result is None else result


# ---- records ----------------------------------------------------------------------------------------------------------


def _home() -> Path:
    from .cache import default_folder

    return default_folder()


def _path(key: tuple[int, int, int, str], sms: int) -> Path:
    m, n, k, arch = key
    return _home() / _FOLDER / f"{arch}_{m}x{n}x{k}_{sms}.json"


def package_digest() -> str:
    """Changes with every file of the package that a record depends on, and with what was tuned on this computer."""
    root = Path(__file__).resolve().parents[1]
    parts = ["layout", "layout/hardware", "kernels", "kernels/cuda", "codegen", "codegen/tuned"]
    found: list[tuple[str, int, int]] = []
    for part in parts:
        with os.scandir(root / part) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".cuh", ".cu", ".json")):
                    about = entry.stat()
                    found.append((f"{part}/{entry.name}", about.st_size, about.st_mtime_ns))
    # A tuned result is renamed into its folder, which changes the folder's time.
    for folder in _home().glob(f"{_TUNED}/*/*"):
        about = folder.stat()
        found.append((folder.name, 0, about.st_mtime_ns))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class RecordedGemm:
    """What ``Calls`` needs of a Gemm, from a record."""

    key: tuple[int, int, int, str]
    record: Mapping[str, Any]
    sms: int = 0
    """Multiprocessors of the devices that the record serves."""

    @property
    def m(self) -> int:
        """Rows of D."""
        return self.key[0]

    @property
    def n(self) -> int:
        """Columns of D."""
        return self.key[1]

    @property
    def problem(self) -> Any:
        """The types of A and D."""
        return SimpleNamespace(a="bf16", d="bf16")

    @functools.cached_property
    def kernel(self) -> Any:
        """The kernel, to be loaded from its cubin."""
        from .launch import LoadedKernel

        cluster = (self.record["cluster"], 1, 1)
        return LoadedKernel(self.record["cubin"], self.record["name"], self.record["shared_bytes"], cluster)

    def order_table(self) -> Any:
        """Empty: a kernel that reads its order of tiles from a table has no record."""
        return SimpleNamespace(size=0)

    def bind(self, a: Any, b: Any, out: Any, workspace: Any = None) -> Any:
        """The launch for dense arrays of bf16 on the current device; for all others, and where the cubin does not load, the
        whole Gemm's, which says what is wrong.
        """
        from . import driver
        from .bind import packed
        from .launch import LaunchError, current_device

        m, n, k, _ = self.key
        fits = all(_dense(array, shape) for array, shape in ((a, (m, k)), (b, (n, k)), (out, (m, n))))
        if fits and _apart(a, b, out) and driver.multiprocessors(current_device()) == self.sms:
            try:
                own = Workspace(self, SimpleNamespace(**self.record["workspace"]), workspace)
                arguments, record = self._arguments(a, b, out), self.record
                launch = packed(
                    self.kernel, record["ctas"], record["threads"], arguments, own, dependent=record["dependent"]
                )
                return SimpleNamespace(launch=launch, workspace=own)
            except LaunchError as error:
                _logger.warning("the recorded kernel of %s is not used: %s", self.key, error)
        return _whole(*self.key).bind(a, b, out, workspace=workspace)

    def _arguments(self, a: Any, b: Any, out: Any) -> tuple[Any, ...]:
        from .bind import kernel_arguments
        from .driver import encode_numbers

        addresses = [_address(array) for array in ((b, a, out, out) if self.record["swap"] else (a, b, out, out))]
        encoded = [
            None if numbers is None else encode_numbers(SimpleNamespace(**numbers), address, f"recorded map {self.key}")
            for numbers, address in zip(self.record["maps"], addresses, strict=True)
        ]
        return kernel_arguments(encoded, addresses[2], self.n, self.record["sizes"])


def _address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr)


def _apart(a: Any, b: Any, out: Any) -> bool:
    """Whether the dense result lies over neither of the dense operands."""
    (low, high), *others = [(start := _address(array), start + 2 * math.prod(array.shape)) for array in (out, a, b)]
    return all(high <= start or end <= low for start, end in others)


def _dense(array: Any, shape: tuple[int, int]) -> bool:
    """Whether this is a bf16 matrix of that shape on the current device, row after row, where TMA can read it."""
    from .launch import import_cupy

    device = int(import_cupy().cuda.runtime.getDevice())
    if hasattr(array, "data_ptr"):
        there = str(array.dtype) == "torch.bfloat16" and array.is_contiguous() and array.get_device() == device
    else:
        there = array.dtype.name == "bfloat16" and array.flags.c_contiguous and int(array.device.id) == device
    return bool(there) and tuple(array.shape) == shape and _address(array) % _ALIGNMENT == 0


def _from_record(key: tuple[int, int, int, str]) -> Any:
    """The recorded GEMM of this shape for the current device, or None."""
    from . import driver

    try:
        from .launch import import_cupy

        device = int(import_cupy().cuda.runtime.getDevice())
        if driver.architecture(driver.compute_capability(device)) != key[3]:
            return None
        sms = driver.multiprocessors(device)
        record = json.loads(_path(key, sms).read_text(encoding="utf-8"))
        if record["format"] != _FORMAT or record["digest"] != package_digest():
            return None
        if hashlib.sha256(Path(record["cubin"]).read_bytes()).hexdigest() != record["cubin_digest"]:
            return None
        return RecordedGemm(key, record, sms) if all(name in record for name in _NEEDED) else None
    except Exception as error:  # whatever is wrong with a record, or here, the whole way says it better
        _logger.debug("no record of %s: %s", key, error)
        return None


def _record(made: Gemm) -> None:
    """Leaves a record of a GEMM that was launched, if it can have one. Never raises."""
    from . import driver
    from .gemm import Gemm

    try:
        from .launch import import_cupy

        if type(made) is not Gemm or made.build.cubin_path is None or made.order_table().size:
            return
        device = int(import_cupy().cuda.runtime.getDevice())
        sms = driver.multiprocessors(device)
        key = (made.m, made.n, made.k, made.config.arch)
        path = _path(key, sms)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record_of(made, sms), file)
        os.replace(name, path)
    except Exception as error:  # a folder that cannot be written costs the next process time, nothing else
        _logger.debug("no record is left of %r: %s", made, error)


def record_of(made: Gemm, sms: int) -> dict[str, Any]:
    """All that launching a GEMM on dense arrays needs, as JSON."""
    from stridewright.layout.hardware.tensor_map_driver import driver_arguments

    from .source import KERNEL_NAME

    division, maps = made.division(sms), made.tensor_maps()
    cubin = made.build.cubin_path
    listed = (maps.a, maps.b, maps.d, maps.d_tail)
    return {
        "format": _FORMAT,
        "digest": package_digest(),
        "cubin": str(cubin),
        "cubin_digest": hashlib.sha256(made.cubin).hexdigest(),
        "name": KERNEL_NAME,
        "config": made.config.name,
        "shared_bytes": made.derivation.shared_bytes,
        "threads": made.config.threads,
        "ctas": division.ctas,
        "dependent": made.dependent,
        "cluster": made.config.cluster.m * made.config.cluster.n,
        "swap": made.config.schedule.swap,
        "maps": [None if one is None else dataclasses.asdict(driver_arguments(one.check())) for one in listed],
        "sizes": [*made.kernel_sizes, made.k],
        "workspace": {
            "partial_floats": division.partial_floats,
            "counters": division.counters,
            "shared_blocks": division.shared_blocks,
            "added": made.config.split.reduce == "atomic",
        },
    }
