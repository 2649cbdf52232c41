"""``gemm(a, b, ...)`` for whatever the plain kernel does not do: formats, batches and options are read from the call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stridewright.layout.hardware.scale_factors import SCALED_TYPES

from .asked import no_such
from .bind import OperandError
from .quantise import BlockScaled

if TYPE_CHECKING:
    from .calls import Table
    from .gemm import Gemm

_FORMATS = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "tf32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
}
_RESULTS = {"bf16": "bf16", "f16": "f16", "tf32": "f32", "e4m3": "bf16", "e5m2": "bf16", "s8": "s32"}
_SUB_BYTE = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
_OF_THE_GEMM = (
    "activation",
    "gated",
    "expression",
    "promote",
    "groups",
    "group_by",
    "relayout",
    "load",
    "deterministic",
)
_OF_THE_CALL = ("c", "bias", "alpha", "beta", "aux", "amax", "scale_a", "scale_b", "scale_d", "offsets", "workspace")
_OWN = ("out", "stream", "arch", "d", "a_format", "b_format", "tf32")


def multiply(
    a: Any,
    b: Any,
    out: Any = None,
    stream: Any = None,
    *,
    arch: str = "sm_90a",
    d: str | None = None,
    a_format: str | None = None,
    b_format: str | None = None,
    tf32: bool = False,
    asked: dict[str, Any] | None = None,
    table: Callable[[], Table] | None = None,
    **options: Any,
) -> Any:
    """The product of arrays of any format, in the order ``act(alpha * acc + beta * c + bias) * scale_d``.

    ``acc`` has the scales of rows and of blocks; scales of whole tensors (one number each) are multiplied into ``alpha``, also
    into the one that an expression names.

    ``d``: the result's format (bf16, f16, f32, e4m3, e5m2, s8, s32); by default that of ``out``, or a's (f32 of tf32, bf16 of
    8-bit floats, s32 of s8). ``a_format``, ``b_format``: what bytes (uint8) mean, or elements that have scale factors ("mxfp8",
    "nvfp4"); matrices of :func:`.quantise.quantise` say it themselves. ``tf32``: float32 operands are rounded to 10
    fraction bits, which must be allowed. Three dimensions are a batch. ``options`` are those of :class:`Gemm` (activation,
    gated, expression, promote, groups, group_by, relayout, load, deterministic) and of its call (c, bias, alpha, beta, aux, amax, scales, offsets,
    workspace). The launch is kept in ``table``, too, as one of a call that asked for ``asked``.
    Raises OperandError, ConfigError and LaunchError, and TypeError for an option that there is not.
    """
    unknown = options.keys() - {*_OF_THE_GEMM, *_OF_THE_CALL}
    if unknown:
        raise TypeError(no_such(unknown, (*_OF_THE_GEMM, *_OF_THE_CALL, *_OWN), by_arrays=True))
    shapes = [tuple(int(size) for size in getattr(array, "shape", ())) for array in (a, b)]
    wrong_shapes = OperandError(
        f"a has shape {shapes[0]} and b has shape {shapes[1]}: they must be (M, K) and (N, K), or a batch of them, for d = a @ b.T"
    )
    said = a_format is not None or b_format is not None
    if any(len(shape) not in (2, 3) for shape in shapes) or (shapes[0][-1] != shapes[1][-1] and not said):
        raise wrong_shapes
    formats = (_format(a, "a", a_format, tf32), _format(b, "b", b_format, tf32))
    k, of_b = (_elements(array, dtype) for array, dtype in zip((a, b), formats, strict=True))
    if k != of_b:
        raise wrong_shapes
    wanted = d or (_result_of(out) if out is not None else _RESULTS.get(formats[0], "bf16"))
    own = {name: options.pop(name) for name in _OF_THE_GEMM if name in options}
    if own.get("group_by") == "k":
        own |= {"a_major": "mn", "b_major": "mn"}  # what such groups ask of operands, or of their copies
    if "groups" not in own and 3 in map(len, shapes):
        own["batch"] = next(shape[0] for shape in shapes if len(shape) == 3)
    asked_for = (shapes[0][-2], shapes[1][-2], k, *formats, wanted, arch, tuple(sorted(own.items())))
    try:
        hash(asked_for)
    except TypeError:  # a list, say: no option is one, and the Gemm says so of the option
        _made.__wrapped__(*asked_for)
        raise
    made = _made(*asked_for)
    from .general import GeneralGemm

    if arch != "sm_90a" or not (options.keys() - {"workspace"} or isinstance(made, GeneralGemm)):
        return made(a, b, out=out, stream=stream, **options)
    from .calls import call_with

    general = made if isinstance(made, GeneralGemm) else made.general
    return call_with(general, a, b, out, stream, options, asked, table)


@functools.lru_cache(maxsize=256)
def _made(m: int, n: int, k: int, a: str, b: str, d: str, arch: str, own: tuple[tuple[str, Any], ...]) -> Gemm:
    from .gemm import Gemm

    return Gemm(m, n, k, a, b, d, arch, **dict(own))


def _elements(array: Any, dtype: str) -> int:
    """Elements of K: of packed bytes as many as they hold."""
    length = int(array.shape[-1])
    bits = _SUB_BYTE.get(SCALED_TYPES[dtype].element if dtype in SCALED_TYPES else dtype, 8)
    return length * 8 // bits if str(getattr(array, "dtype", "")).removeprefix("torch.") == "uint8" else length


def _format(array: Any, name: str, said: str | None, tf32: bool) -> str:
    if said is not None:
        if not isinstance(said, str):
            raise OperandError(f'{name}_format: {said!r} was given, and it is a word, for example "e4m3"')
        return said
    if isinstance(array, BlockScaled):
        return array.format.name
    dtype = str(getattr(array, "dtype", "")).removeprefix("torch.")
    found = _FORMATS.get(dtype)
    if found is None:
        hint = f'; bytes of 8-bit floats: {name}_format="e4m3"' if dtype == "uint8" else ""
        raise OperandError(f"{name}: dtype {dtype}, and there is {', '.join(_FORMATS)}{hint}")
    if found == "tf32" and not tf32:
        raise OperandError(
            f"{name}: dtype float32, which the tensor cores multiply rounded to 10 fraction bits: tf32=True allows that"
        )
    return found


_NEAREST = {
    "float64": "float32",
    "int64": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int32",
    "bool": "int8",
}


def _result_of(out: Any) -> str:
    """The format in which D is written into the caller's array."""
    kind = getattr(out, "dtype", None)
    if kind is None:
        raise OperandError(
            f"out: {type(out).__name__} was given, and the result is written into an array, for example np.empty((M, N), np.float32)"
        )
    dtype = str(kind).removeprefix("torch.")
    found = _RESULTS_OF.get(dtype)
    if found is None:
        hint = 'bytes of 8-bit floats: d="e4m3"' if dtype == "uint8" else ""
        hint = hint or (f"nearest {_NEAREST[dtype]}" if dtype in _NEAREST else "out=None makes one")
        raise OperandError(f"out: dtype {dtype}, and a result is {', '.join(_RESULTS_OF)}; {hint}")
    return found


_RESULTS_OF = {**_FORMATS, "float32": "f32", "int32": "s32"}
