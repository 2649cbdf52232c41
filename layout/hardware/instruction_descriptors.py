"""The 32-bit instruction descriptor of tcgen05.mma: encode, decode, and which shapes and types each kind takes.

Sources: PTX ISA 9.1 section 9.7.16.4.2, tables 42 (f16, tf32, f8f6f4, i8), 43 (mxf8f6f4) and 44 (mxf4, mxf4nvf4);
table 39 of 9.7.16 for shapes; CuTe mma_sm100_desc.hpp. No Blackwell was at hand: the words are checked against what
CuTe's headers and the CuTe DSL's PTX hold.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from .errors import HardwareError, Problem, is_whole, nearest, whole

_FLOAT8 = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
# The code of each operand type by kind, bits 7-9 (A) and 10-12 (B).
OPERAND_CODES: dict[str, dict[str, int]] = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": _FLOAT8,
    "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": _FLOAT8,
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
ACCUMULATOR_CODES = {"f16": 0, "f32": 1, "s32": 2}  # bits 4-5
ACCUMULATORS: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"),
    "tf32": ("f32",),
    "f8f6f4": ("f16", "f32"),
    "i8": ("s32",),
    "mxf8f6f4": ("f32",),
    "mxf4": ("f32",),
    "mxf4nvf4": ("f32",),
}
SCALE_CODES = {"ue4m3": 0, "ue8m0": 1}  # bit 23
SCALES: dict[str, tuple[str, ...]] = {"mxf8f6f4": ("ue8m0",), "mxf4": ("ue8m0",), "mxf4nvf4": ("ue4m3", "ue8m0")}
SCALE_IDS: dict[str, tuple[int, ...]] = {"mxf8f6f4": (0, 1, 2, 3), "mxf4": (0, 2), "mxf4nvf4": (0, 2)}
SHIFTS = (0, 8, 16, 32)  # bits 30-31 of .ws: largest B shift
DENSE_K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SM103_K = 96  # mxf4 and mxf4nvf4, bit 31 (sm_103a)
KINDS = tuple(OPERAND_CODES)


DISABLE_OUTPUT_LANE_REGISTERS = {1: 4, 2: 8}  # by cta_group: a mask of one bit a lane (PTX 9.7.16.10.9)
MAXIMUM_INPUT_SCALE = 15  # scale-input-d: D = A * B + D * 2^-s


def input_scale_problems(kind: str, scale: int) -> list[Problem]:
    """What is wrong with scale-input-d of that kind: D = A * B + D * 2^-scale (PTX ISA 9.1 section 9.7.16.10.9).

    >>> input_scale_problems("f16", 3), input_scale_problems("i8", 1)[0].field
    ([], 'scale_input_d')
    """
    found = []
    if not 0 <= scale <= MAXIMUM_INPUT_SCALE:
        found.append(Problem("scale_input_d", scale, "must be in 0..15 (ptxas 13.0)", ""))
    if scale and kind not in ("f16", "tf32"):
        found.append(Problem("scale_input_d", scale, f"is for kinds f16 and tf32, not {kind}", "use 0"))
    return found


def is_block_scaled(kind: str) -> bool:
    """Whether the kind takes scale factors.

    >>> is_block_scaled("mxf4"), is_block_scaled("f16")
    (True, False)
    """
    return kind in SCALES


def legal_m(kind: str, cta_group: int = 1, ws: bool = False) -> tuple[int, ...]:
    """The M of tcgen05.mma (table 39). ``ws``: the weight-stationary form.

    >>> legal_m("f16"), legal_m("f16", 2), legal_m("mxf4"), legal_m("f16", ws=True)
    ((64, 128), (128, 256), (128,), (32, 64, 128))
    """
    if ws:
        return () if is_block_scaled(kind) or cta_group == 2 else (32, 64, 128)
    if cta_group == 2:
        return (128, 256)
    return (128,) if is_block_scaled(kind) else (64, 128)


def legal_n(kind: str, cta_group: int = 1, ws: bool = False) -> tuple[int, ...]:
    """The N of tcgen05.mma (table 39).

    >>> legal_n("i8")[:6], legal_n("f16", 2)[:2], legal_n("f16", ws=True)
    ((8, 16, 24, 32, 48, 64), (16, 32), (64, 128, 256))
    """
    if ws:
        return () if is_block_scaled(kind) or cta_group == 2 else (64, 128, 256)
    if kind == "i8":
        return tuple(range(32, 257, 32)) if cta_group == 2 else (8, 16, 24, *range(32, 257, 16))
    return tuple(range(16, 257, 16)) if cta_group == 2 else tuple(range(8, 257, 8))


@dataclass(frozen=True)
class InstructionDescriptor:
    """The fields of an instruction descriptor. ``m`` and ``n`` are the whole instruction's, over both CTAs of a pair.

    ``k`` is 0 for the kind's own K, 96 for mxf4 and mxf4nvf4 on sm_103a. Scale fields count for block-scaled kinds
    alone, ``saturate`` for i8, ``max_shift`` (0, 8, 16, 32) for .ws.
    """

    kind: str
    m: int
    n: int
    a: str
    b: str
    d: str
    a_major: str = "k"
    b_major: str = "k"
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    max_shift: int = 0
    scale: str = ""
    scale_a_id: int = 0
    scale_b_id: int = 0
    k: int = 0

    @property
    def block_scaled(self) -> bool:
        """Whether the kind takes scale factors."""
        return is_block_scaled(self.kind)

    @property
    def instruction_k(self) -> int:
        """Elements of K that one instruction takes; twice as many when A is sparse.

        >>> InstructionDescriptor("f16", 128, 256, "bf16", "bf16", "f32").instruction_k
        16
        """
        return (self.k or DENSE_K[self.kind]) * (2 if self.sparse else 1)

    def problems(self, cta_group: int | None = None, ws: bool = False) -> list[Problem]:
        """Every rule the fields break; with ``cta_group`` (1 or 2) and ``ws`` also the legal shapes.

        Without ``cta_group`` a shape is accepted if some form of the instruction has it.

        >>> print(InstructionDescriptor("f16", 128, 204, "bf16", "bf16", "f32").problems(1)[0])
        n=204: must be one of 8, 16, 24 .. 256 for kind f16, cta_group 1 (PTX table 39); nearest 200, 208
        """
        if self.kind not in KINDS:
            return [
                Problem("kind", self.kind, f"must be one of {', '.join(KINDS)}", f"nearest {nearest(self.kind, KINDS)}")
            ]
        wrong = [
            Problem(field.name, repr(value), f"must be {'a bool' if field.type == 'bool' else 'an int'}", "")
            for field in fields(self)
            for value in (getattr(self, field.name),)
            if (field.type == "bool" and not isinstance(value, bool)) or (field.type == "int" and not is_whole(value))
        ]
        return wrong or self._type_problems() + self._shape_problems(cta_group, ws) + self._flag_problems(ws)

    def _type_problems(self) -> list[Problem]:
        found = []
        codes = OPERAND_CODES[self.kind]
        for name in ("a", "b"):
            value = getattr(self, name)
            if value not in codes:
                found.append(Problem(name, value, f"kind {self.kind} takes {', '.join(codes)}", ""))
        if self.kind == "f16" and self.a != self.b:
            found.append(Problem("b", self.b, f"kind f16 takes one type for A ({self.a}) and B", self.a))
        if self.d not in ACCUMULATORS[self.kind]:
            found.append(
                Problem("d", self.d, f"kind {self.kind} accumulates in {' or '.join(ACCUMULATORS[self.kind])}", "")
            )
        elif self.d == "f16" and self.a == "bf16":
            found.append(Problem("d", self.d, "bf16 accumulates in f32", "f32"))
        for name, operand in (("a_major", self.a), ("b_major", self.b)):
            major = getattr(self, name)
            if major not in ("k", "mn"):
                found.append(Problem(name, major, "must be 'k' or 'mn'", ""))
            elif major == "mn" and operand in ("e2m1", "e2m3", "e3m2"):
                found.append(Problem(name, major, f"4- and 6-bit types ({operand}) are K-major only", "k"))
        return found

    def _shape_problems(self, cta_group: int | None, ws: bool) -> list[Problem]:
        found = []
        groups = (1, 2) if cta_group is None else (cta_group,)
        if any(group not in (1, 2) for group in groups):
            return [Problem("cta_group", cta_group, "must be 1 or 2", "")]
        forms = [(g, w) for g in groups for w in ((False, True) if cta_group is None else (ws,))]
        where = f"kind {self.kind}" + (f", cta_group {cta_group}" if cta_group else "") + (", .ws" if ws else "")
        for name, legal in (("m", legal_m), ("n", legal_n)):
            allowed = sorted({value for g, w in forms for value in legal(self.kind, g, w)})
            value = getattr(self, name)
            if value not in allowed:
                near = sorted(sorted(allowed, key=lambda v: abs(v - value))[:2])
                text = ", ".join(map(str, allowed[:3])) + (f" .. {allowed[-1]}" if len(allowed) > 3 else "")
                fix = f"nearest {', '.join(map(str, near))}" if near else f"kind {self.kind} has no such form"
                found.append(Problem(name, value, f"must be one of {text} for {where} (PTX table 39)", fix))
        if cta_group and self.b_major == "mn" and self.kind in ("i8", "f8f6f4", "mxf8f6f4"):
            step = 32 if cta_group == 2 else 16
            if self.n % step:
                rule = f"must be a multiple of {step} with a transposed 8-bit B, cta_group {cta_group} (PTX table 39)"
                found.append(Problem("n", self.n, rule, ""))
        k_allowed = (0, DENSE_K[self.kind], SM103_K) if self.kind in ("mxf4", "mxf4nvf4") else (0, DENSE_K[self.kind])
        if self.k not in k_allowed:
            found.append(Problem("k", self.k, f"kind {self.kind} has K {', '.join(map(str, k_allowed[1:]))}", ""))
        if self.k == SM103_K and self.sparse:
            found.append(Problem("sparse", True, "K = 96 is dense only (mma_sm100_desc.hpp)", ""))
        return found

    def _flag_problems(self, ws: bool) -> list[Problem]:
        found = []
        if self.saturate and self.kind != "i8":
            found.append(Problem("saturate", True, "kind i8 only (bit 3)", ""))
        if (self.negate_a or self.negate_b) and self.kind == "i8":
            found.append(Problem("negate", True, "not for kind i8 (bits 13, 14)", ""))
        if not 0 <= self.sparsity_selector <= 3 or (self.sparsity_selector and not self.sparse):
            found.append(
                Problem("sparsity_selector", self.sparsity_selector, "0..3, and only with sparse (bits 0-1)", "")
            )
        if self.sparsity_selector and self.block_scaled:
            found.append(
                Problem("sparsity_selector", self.sparsity_selector, f"0 for kind {self.kind} (tables 43, 44)", "")
            )
        if self.max_shift not in SHIFTS or (self.max_shift and self.block_scaled):
            found.append(
                Problem("max_shift", self.max_shift, "must be 0, 8, 16 or 32, and is for .ws (bits 30-31)", "")
            )
        if self.block_scaled:
            if self.scale not in SCALES[self.kind]:
                rule = f"kind {self.kind} takes scales {' or '.join(SCALES[self.kind])}"
                found.append(Problem("scale", self.scale, rule, SCALES[self.kind][0]))
            for name in ("scale_a_id", "scale_b_id"):
                if getattr(self, name) not in SCALE_IDS[self.kind]:
                    rule = f"kind {self.kind} takes {', '.join(map(str, SCALE_IDS[self.kind]))}"
                    found.append(Problem(name, getattr(self, name), rule, ""))
        elif self.scale or self.scale_a_id or self.scale_b_id:
            found.append(Problem("scale", self.scale, f"kind {self.kind} takes no scale factors", "use an mx kind"))
        return found

    def warnings(self, cta_group: int = 1) -> list[Problem]:
        """What table 39 allows and NVIDIA's own code avoids.

        >>> InstructionDescriptor("f16", 128, 24, "bf16", "bf16", "f32").warnings()[0].field
        'n'
        """
        step = 32 if cta_group == 2 else 16
        if self.kind not in KINDS or self.n % step == 0 or (self.m == 64 and cta_group == 1):
            return []
        rule = f"with A in tensor memory CuTe takes only multiples of {step}, as DeepGEMM does throughout"
        return [Problem("n", self.n, rule, "")]

    def encode(self) -> int:
        """The 32-bit word. Raises HardwareError with all problems.

        >>> hex(InstructionDescriptor("f16", 128, 256, "bf16", "bf16", "f32").encode())
        '0x8400490'
        """
        found = self.problems()
        if found:
            raise HardwareError("no instruction descriptor: " + "\n".join(str(problem) for problem in found))
        codes = OPERAND_CODES[self.kind]
        word = self.sparsity_selector | self.sparse << 2 | codes[self.a] << 7 | codes[self.b] << 10
        word |= self.negate_a << 13 | self.negate_b << 14
        word |= (self.a_major == "mn") << 15 | (self.b_major == "mn") << 16 | self.n >> 3 << 17
        if not self.block_scaled:
            word |= self.saturate << 3 | ACCUMULATOR_CODES[self.d] << 4
            return word | self.m >> 4 << 24 | SHIFTS.index(self.max_shift) << 30
        word |= self.scale_b_id << 4 | SCALE_CODES[self.scale] << 23 | self.m >> 7 << 27 | self.scale_a_id << 29
        return word | (self.k == SM103_K) << 31

    def explain(self) -> str:
        """One line a field that differs from its default, and the shape.

        >>> print(InstructionDescriptor("f16", 128, 256, "bf16", "bf16", "f32", b_major="mn").explain())
        kind::f16 128x256x16, bf16 (K-major) x bf16 (MN-major) -> f32
        """
        head = f"kind::{self.kind} {self.m}x{self.n}x{self.instruction_k}, {self.a} ({self.a_major.upper()}-major) x "
        head += f"{self.b} ({self.b_major.upper()}-major) -> {self.d}"
        plain = {"kind", "m", "n", "a", "b", "d", "a_major", "b_major", "k"}
        extra = [f.name for f in fields(self) if f.name not in plain and getattr(self, f.name) != f.default]
        return "\n".join([head, *(f"  {name} {getattr(self, name)}" for name in extra)])


def instruction_descriptor(
    kind: str = "f16",
    m: int = 128,
    n: int = 128,
    a: str = "",
    b: str = "",
    d: str = "",
    a_major: str = "k",
    b_major: str = "k",
    *,
    negate_a: bool = False,
    negate_b: bool = False,
    saturate: bool = False,
    sparse: bool = False,
    sparsity_selector: int = 0,
    max_shift: int = 0,
    scale: str = "",
    scale_a_id: int = 0,
    scale_b_id: int = 0,
    k: int = 0,
    cta_group: int | None = None,
    ws: bool = False,
) -> int:
    """The 32-bit instruction descriptor of a tcgen05.mma. Types left out are the kind's first; with ``cta_group`` the
    shape is checked for that form too.

    Raises HardwareError with every broken rule. Source: PTX ISA 9.1 tables 39 and 42 to 44.

    >>> hex(instruction_descriptor(kind="f16", m=128, n=256, a="bf16", b="bf16", d="f32"))
    '0x8400490'
    >>> hex(instruction_descriptor(kind="mxf4nvf4", m=256, n=256, scale="ue4m3"))
    '0x10400480'
    """
    if kind in KINDS:
        a = a or next(iter(OPERAND_CODES[kind]))
        b = b or a
        d = d or ("f32" if "f32" in ACCUMULATORS[kind] else ACCUMULATORS[kind][0])
        scale = scale or (SCALES[kind][0] if kind in SCALES else "")
    descriptor = InstructionDescriptor(
        kind, m, n, a, b, d, a_major, b_major, negate_a, negate_b, saturate, sparse, sparsity_selector, max_shift,
        scale, scale_a_id, scale_b_id, k,
    )  # fmt: skip
    found = descriptor.problems(cta_group, ws)
    if found:
        raise HardwareError("no instruction descriptor: " + "\n".join(str(problem) for problem in found))
    return descriptor.encode()


def decode_instruction_descriptor(word: int, kind: str = "f16") -> InstructionDescriptor:
    """The fields of a 32-bit word for a kind (the instruction says which). Raises HardwareError for what is not
    defined.

    >>> decode_instruction_descriptor(0x08410490).b_major
    'mn'
    >>> decode_instruction_descriptor(0x10400480, "mxf4nvf4").m
    256
    """
    if kind not in KINDS:
        raise HardwareError(f"kind {kind!r}: must be one of {', '.join(KINDS)}; nearest {nearest(kind, KINDS)}")
    word = whole("instruction descriptor", word)
    if not 0 <= word < 1 << 32:
        raise HardwareError(f"instruction descriptor {word:#x}: must be a 32-bit word")
    scaled = is_block_scaled(kind)
    reserved = 1 << 6 | (0b111 << 24 | 1 << 3 if scaled else 1 << 23 | 1 << 29)
    if kind in ("mxf4", "mxf4nvf4"):
        reserved |= 1 << 12 | 0b11 << 15
    elif kind == "mxf8f6f4":
        reserved |= 1 << 31
    if word & reserved:
        raise HardwareError(
            f"instruction descriptor {word:#010x}: bits {word & reserved:#x} are reserved for kind {kind}"
        )

    def name(codes: dict[str, int], code: int, what: str) -> str:
        for key, value in codes.items():
            if value == code:
                return key
        raise HardwareError(f"instruction descriptor {word:#010x}: {what} code {code} is not defined for kind {kind}")

    codes = OPERAND_CODES[kind]
    b_bits = 0b11 if kind in ("mxf4", "mxf4nvf4") else 0b111
    descriptor = InstructionDescriptor(
        kind,
        (word >> 27 & 3) << 7 if scaled else (word >> 24 & 31) << 4,
        (word >> 17 & 63) << 3,
        name(codes, word >> 7 & 7, "A type"),
        name(codes, word >> 10 & b_bits, "B type"),
        "f32" if scaled else name(ACCUMULATOR_CODES, word >> 4 & 3, "D type"),
        "mn" if word >> 15 & 1 else "k",
        "mn" if word >> 16 & 1 else "k",
        bool(word >> 13 & 1),
        bool(word >> 14 & 1),
        not scaled and bool(word >> 3 & 1),
        bool(word >> 2 & 1),
        word & 3,
        0 if scaled else SHIFTS[word >> 30],
        name(SCALE_CODES, word >> 23 & 1, "scale") if scaled else "",
        (word >> 29 & 3) if scaled else 0,
        (word >> 4 & 3) if scaled else 0,
        SM103_K if scaled and word >> 31 else 0,
    )
    found = descriptor.problems()
    if found:
        raise HardwareError(f"instruction descriptor {word:#010x}: " + "\n".join(str(problem) for problem in found))
    return descriptor
