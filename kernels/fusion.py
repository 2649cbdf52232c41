"""What is done to a GEMM's sums before they are stored, and which of it goes together.

In this order: ``acc`` is the sum, times the scales of its row of A and its row of B, or with those of its blocks; alpha is
that of the call times the scales of whole tensors; ``x = alpha * acc + beta * C + bias``; an activation or the user's own expression; a factor; the conversion to D's format. Knows nothing of CUDA beyond
the words that a user's expression may hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .expression import FUNCTIONS, VALUES, ExpressionError, parse
from .spelling import activation_meant

Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid"]
ScaleKind = Literal["", "row", "block"]

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid")
ADDED_FORMATS = ("f32", "bf16", "f16")
"""Formats of C and of a bias."""

BLOCK_K = 128
"""Elements of K, and rows of B, that share a scale of kind "block"."""

EXPRESSION_VALUES = VALUES
"""What a user's expression may name: x is alpha * acc + beta * c + bias; acc has the scales of rows and of blocks in it, alpha
those of whole tensors; row and col are D's (whole numbers)."""

EXPRESSION_FUNCTIONS = FUNCTIONS
"""The functions it may call: those of kernels/cuda/activations.cuh and single-precision ones of CUDA C++."""


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """What a kernel does to its sums before it stores them. The default does nothing, and costs nothing."""

    alpha: bool = False
    """Whether the sums are multiplied by alpha: a number of the launch, or one in device memory."""
    c: str = ""
    """Format of the matrix C that is added, times beta; "" for none."""
    bias: str = ""
    """"n": a bias for each column of D; "m": for each row; "" for none."""
    bias_format: str = "f32"
    activation: Activation = "none"
    gated: bool = False
    """Whether neighbouring columns 2 j and 2 j + 1 make one: act(x[2 j]) * x[2 j + 1]. D has N / 2 columns then."""
    aux: bool = False
    """Whether x, what the activation is applied to, is stored too, in D's format."""
    amax: bool = False
    """Whether the largest |D| (before ``scale_d``) is reported."""
    scale_a: ScaleKind = ""
    """Scales of A: one for each row ("row"), or one for each row and 128 elements of K ("block")."""
    scale_b: ScaleKind = ""
    """Scales of B: one for each of its rows ("row"), or one for each 128 rows and 128 elements of K ("block")."""
    scale_d: bool = False
    """Whether the result is multiplied by a factor in device memory before it is converted."""
    expression: str = ""
    """C++ in place of an activation, of the values ``EXPRESSION_VALUES`` and the functions ``EXPRESSION_FUNCTIONS``."""

    @property
    def changes_sums(self) -> bool:
        """Whether anything is done to the sums before they are converted to D's format (scales of blocks are in them).

        >>> Fusion(amax=True).changes_sums, Fusion(bias="n").changes_sums
        (False, True)
        """
        rows = "row" in (self.scale_a, self.scale_b)
        done = self.alpha or self.gated or self.scale_d or self.activation != "none"
        return bool(done or rows or self.c or self.bias or self.expression)

    @property
    def name(self) -> str:
        """A short name of what is used, "" for nothing.

        >>> Fusion(bias="n", activation="gelu").name
        'biasn_gelu'
        """
        parts = [word for word in ("alpha", "gated", "aux", "amax", "scale_d") if getattr(self, word)]
        parts += [f"c{self.c}"] if self.c else []
        parts += [f"bias{self.bias}" + (self.bias_format if self.bias_format != "f32" else "")] if self.bias else []
        parts += [] if self.activation == "none" else [self.activation]
        parts += [f"scale{which}{kind}" for which, kind in (("a", self.scale_a), ("b", self.scale_b)) if kind]
        parts += ["expression"] if self.expression else []
        return "_".join(parts)

    @property
    def uses_terms(self) -> bool:
        """Whether the kernel needs more than A and B."""
        return self != Fusion()


def expression_problem(text: str) -> str:
    """What is wrong with a user's expression, "" if nothing: the first word or sign that does not belong there, and what would.

    >>> expression_problem("fmaxf(x, 0.1f * x)"), expression_problem("x; y")
    ('', "';' at 1 is none of the signs - + * / % ( ) ? : , < > <= >= == != && || !")
    """
    try:
        parse(text)
    except ExpressionError as error:
        return str(error)
    return ""


def fusion_problems(fusion: Fusion) -> list[tuple[str, object, str, str]]:
    """(parameter, value, rule, fix) of everything that does not go together, whatever the architecture.

    >>> fusion_problems(Fusion(activation="tanh"))[0][:2]
    ('activation', "'tanh'")
    """
    found: list[tuple[str, object, str, str]] = []
    for name, value, allowed in (
        ("activation", fusion.activation, ACTIVATIONS),
        ("bias", fusion.bias, ("", "m", "n")),
        ("bias_format", fusion.bias_format, ADDED_FORMATS),
        ("c", fusion.c, ("", *ADDED_FORMATS)),
        ("scale_a", fusion.scale_a, ("", "row", "block")),
        ("scale_b", fusion.scale_b, ("", "row", "block")),
    ):
        if value not in allowed:
            words = ", ".join(f'"{word}"' for word in allowed)
            fix = activation_meant(value) if name == "activation" else ""
            found.append((name, repr(value), f"must be one of {words}", fix))
    if fusion.expression and not isinstance(fusion.expression, str):
        fix = 'for example "fmaxf(x, 0.1f * x)"'
        found.append(("expression", repr(fusion.expression), "must be a string of C++", fix))
    elif fusion.expression:
        problem, shown = expression_problem(fusion.expression), repr(fusion.expression)
        if len(shown) > 200:
            shown = f"{shown[:200]}..."
        if problem:
            found.append(("expression", shown, problem, 'for example "fmaxf(x, 0.1f * x)"'))
        if fusion.activation != "none":
            found.append(
                ("expression", repr(fusion.expression), "stands in place of an activation", "activation='none'")
            )
        if fusion.gated:
            found.append(
                ("expression", repr(fusion.expression), "a gated pair has two sums, an expression one", "gated=False")
            )
    if (fusion.scale_a == "block") != (fusion.scale_b == "block"):
        rule = "scales of blocks of K are applied to both operands together, while the sum runs"
        found.append(("scale_a", repr(fusion.scale_a), rule, 'scale_a="block" and scale_b="block", or neither'))
    return found
