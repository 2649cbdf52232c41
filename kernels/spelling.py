"""Names that other libraries have for formats and activations, and what they are called here: for messages only."""

from __future__ import annotations

from collections.abc import Sequence

_FORMATS = {
    "bfloat16": ("bf16",),
    "float16": ("f16",),
    "fp16": ("f16",),
    "half": ("f16",),
    "float32": ("f32", "tf32"),
    "fp32": ("f32", "tf32"),
    "f32": ("f32", "tf32"),
    "float": ("f32", "tf32"),
    "fp8": ("e4m3", "e5m2"),
    "float8": ("e4m3", "e5m2"),
    "float8_e4m3fn": ("e4m3",),
    "float8_e4m3": ("e4m3",),
    "fp8_e4m3": ("e4m3",),
    "float8_e5m2": ("e5m2",),
    "fp8_e5m2": ("e5m2",),
    "fp6": ("e2m3", "e3m2"),
    "fp4": ("e2m1", "nvfp4", "mxfp4"),
    "int8": ("s8",),
    "i8": ("s8",),
    "uint8": ("u8",),
    "int32": ("s32",),
}
_ACTIVATIONS = {
    "swish": "silu",
    "logistic": "sigmoid",
    "gelu_new": "gelu_tanh",
    "gelu_erf": "gelu",
    "identity": "none",
    "linear": "none",
}
_GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid"}


def format_meant(name: object, formats: Sequence[str]) -> str:
    """What is to be said of a format that is none of ``formats``: how it is called here, "" where that is not known.

    >>> format_meant("fp8", ("bf16", "e4m3", "e5m2")), format_meant("FP32", ("bf16", "tf32")), format_meant("fp7", ("bf16",))
    ('"e4m3" or "e5m2" is meant', 'float32 operands are multiplied as "tf32" (10 fraction bits)', '')
    """
    found = [one for one in _FORMATS.get(str(name).lower(), ()) if one in formats]
    if found == ["tf32"]:
        return 'float32 operands are multiplied as "tf32" (10 fraction bits)'
    return f"{' or '.join(map(_quoted, found))} is meant" if found else ""


def activation_meant(name: object) -> str:
    """What is to be said of an activation that is none: how it is called here, or how others are written.

    >>> activation_meant("swish"), activation_meant("swiglu")
    ('"silu" is meant', '"silu" with gated=True is meant')
    """
    word = str(name).lower()
    if word in _GATED:
        return f"{_quoted(_GATED[word])} with gated=True is meant"
    found = _ACTIVATIONS.get(word)
    return f"{_quoted(found)} is meant" if found else 'expression="tanhf(x)" writes others'


def _quoted(word: str) -> str:
    return f'"{word}"'
