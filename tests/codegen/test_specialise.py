"""What is left out of a kernel's source changes no instruction, and what stays is used."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from stridewright.codegen.build import Build, build
from stridewright.codegen.source import generate, whole
from stridewright.codegen.specialise import evaluated, simplified, specialised
from stridewright.codegen.unused import masked, split, used, without_unused
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.fusion import Fusion

FP8 = Problem(a="e4m3", b="e4m3", d="bf16")
CONFIGS = {
    "plain": GemmConfig(),
    "ping-pong": GemmConfig().replace(schedule_kind="pingpong", tile_n=200),
    "cluster": GemmConfig().replace(tile_n=128, cluster_m=2, cluster_n=2, order="serpentine"),
    "split": GemmConfig().replace(tile_n=128, tile_k=32, split_kind="split", parts=4, cluster_n=2, hint_b="last"),
    "promoted": GemmConfig(
        problem=FP8, fusion=Fusion(scale_a="block", scale_b="block")
    ).replace(tile_n=128, tile_k=128, promote=128),
    "one consumer": GemmConfig().replace(tile_m=64, tile_n=40, consumers=1, stages=8),
    "swapped": GemmConfig().replace(tile_m=64, tile_n=40, tile_k=128, consumers=1, swap=True),
    "direct": GemmConfig().replace(tile_m=256, tile_n=72, stages=3, store="direct"),
    "swapped, direct": GemmConfig().replace(tile_m=64, tile_n=88, consumers=1, swap=True, store="direct"),
    "three consumers": GemmConfig().replace(tile_m=192, tile_n=128, consumers=3, order="column"),
    "stream, atomic": GemmConfig().replace(tile_n=128, split_kind="stream", reduce="atomic", order="hilbert"),
    "baked": GemmConfig(problem=Problem(n=8192, k=8192)).replace(tile_n=128, specialize="nk", order="row"),
    "rows innermost": GemmConfig(problem=Problem(a_major="mn", b_major="mn")).replace(tile_n=128),
    "integers": GemmConfig(problem=Problem(a="s8", b="s8", d="s32")).replace(tile_n=128, tile_k=128, store="direct"),
    "finished": GemmConfig(fusion=Fusion(alpha=True, c="bf16", bias="n", activation="gelu")).replace(tile_n=128),
    "gated": GemmConfig(fusion=Fusion(gated=True, activation="silu")).replace(tile_n=128, store="direct"),
    "all that is reported": GemmConfig(
        problem=Problem(a="e4m3", b="e5m2", d="e4m3"),
        fusion=Fusion(alpha=True, amax=True, scale_d=True, bias="m", aux=True),
    ).replace(tile_n=64, tile_k=128, store="direct"),
    "batch": GemmConfig(problem=Problem(form="batch")).replace(tile_n=128),
    "groups of rows": GemmConfig(problem=Problem(form="groups_m")).replace(tile_n=128),
    "groups of K": GemmConfig(problem=Problem(form="groups_k", a_major="mn", b_major="mn")).replace(tile_n=128),
}  # fmt: skip
EVERY_RUN = ("plain", "split", "promoted", "all that is reported")


def configurations() -> list[object]:
    """A few for every run, the others for the nightly command."""
    return [pytest.param(name, marks=[] if name in EVERY_RUN else [pytest.mark.slow]) for name in CONFIGS]


def instructions(program: Build) -> list[str]:
    """The kernel's PTX: registers renumbered in the order in which they come, and no data of the module."""
    text = program.ptx[program.ptx.index(".entry") :].partition(".section")[0]
    numbers: dict[str, str] = {}

    def renumbered(match: re.Match[str]) -> str:
        kind = match[1]
        return numbers.setdefault(match[0], f"%{kind}{sum(name.startswith(f'%{kind}') for name in numbers)}")

    lines = (line.partition("//")[0].strip() for line in text.splitlines())
    body = [line for line in lines if line and not line.startswith((".reg", ".loc"))]
    return [re.sub(r"%(r|rd|f|p|rs|fd)\d+", renumbered, line) for line in body]


@pytest.mark.parametrize("name", configurations())
def test_what_is_left_out_changes_no_instruction(name: str) -> None:
    config = CONFIGS[name]
    short, full = (build(source, arch="sm_90a") for source in (generate(config), whole(config)))
    assert instructions(short) == instructions(full)
    assert short.kernel("stridewright_gemm").registers == full.kernel("stridewright_gemm").registers


@pytest.mark.parametrize("name", configurations())
def test_what_stays_is_used_and_compiles_without_a_warning(name: str) -> None:
    source = generate(CONFIGS[name])
    program = build(source, arch="sm_90a")
    assert program.complaints == ()
    assert "warning" not in program.log.lower()
    words = Counter(re.findall(r"\w+", masked(source)))
    defined = re.findall(r"^(?:constexpr \w+|using|DEVICE [^(;=]*?) ?(\w+)(?: = |\()", source, re.M)
    assert len(defined) > 40
    assert [once for once in defined if words[once] == 1] == []


def test_the_arguments_of_a_launch_stay_as_the_host_lays_them_out() -> None:
    for name in ("finished", "batch", "promoted"):
        terms = [
            re.search(r"struct Terms \{(.*?)\n\};", text, re.S)
            for text in (generate(CONFIGS[name]), whole(CONFIGS[name]))
        ]
        short, full = (re.findall(r"(\w+)(?:\[3\])?;", found[1]) for found in terms if found)
        assert short == full


def test_a_plain_kernel_says_nothing_of_what_it_does_not_do() -> None:
    source = generate(GemmConfig())
    for word in ("SPLIT", "FORM_", "PINGPONG", "HINT_", "multicast", "matrix of", "Terms", "swapped"):
        assert word not in source.partition("kernels/cuda/types.cuh")[2], word


def test_known_parts_of_conditions_are_decided() -> None:
    known = {"A": 1, "B": 0, "N": 4, "X": "X", "Y": "Y", "KIND": "X"}
    assert simplified("A && i > 0", known) == "i > 0"
    assert simplified("B && i > 0", known) is False
    assert simplified("A || i > 0", known) is True
    assert simplified("B || i > 0 && A", known) == "i > 0"
    assert simplified("!B && (KIND != Y || i > 0)", known) is True
    assert simplified("KIND == Y || (B || i < N)", known) == "(i < N)"
    assert simplified("f(A)", known) == "f(A)"
    assert evaluated("N / 8 * 2 + 3 % 2", known) == 1
    assert evaluated("N / B", known) is None
    assert evaluated("KIND + 1", known) is None
    assert evaluated("(N", known) is None


SMALL = """enum Kind { FIRST, SECOND };
constexpr Kind KIND = SECOND;
constexpr bool TWICE = KIND == SECOND;

// A factor.
DEVICE int factor() { return 2; }

struct Sum {
    int value;
    int unread;    // by anyone

    DEVICE Sum(int value, int unread) : value(value), unread(unread) {}

    // Twice the value.
    DEVICE int doubled() const { return 2 * value; }

    DEVICE int plain() const { return value; }
};

// TWICE: it is doubled.
//
// !TWICE: it is not.
DEVICE int run(int x, int y) {
    const int left = x + y;
    // Only the first kind.
    if (KIND == FIRST) {
        x = factor();
    } else if (x > 1) {
        x = 1;
    } else {
        x = TWICE ? 3 : 4;
    }
    return Sum(x + (KIND == FIRST ? y : 0), y).plain();
}

extern "C" __global__ void kernel(int x) { run(x, 7); }
"""


def test_a_small_program_becomes_what_is_left_of_it() -> None:
    assert (
        specialised(SMALL)
        == """struct Sum {
    int value;

    DEVICE Sum(int value) : value(value) {}

    DEVICE int plain() const { return value; }
};

// It is doubled.
DEVICE int run(int x) {
    // Only the first kind.
    if (x > 1) {
        x = 1;
    } else {
        x = 3;
    }
    return Sum(x).plain();
}

extern "C" __global__ void kernel(int x) { run(x, 7); }
""".replace("run(x, 7)", "run(x)")
    )


def test_templates_with_one_argument_become_plain() -> None:
    text = (
        "enum Format { SHORT, LONG };\nconstexpr Format D = LONG;\n\ntemplate <Format> struct Stored {\n    using type = short;\n};\n"
        "template <> struct Stored<LONG> {\n    using type = long;\n};\n\ntemplate <Format F> DEVICE typename Stored<F>::type made(float x) {\n"
        "    if constexpr (F == SHORT) return 1;\n    if constexpr (F == LONG) return x;\n}\n\nvoid kernel() { made<D>(2); }\n"
    )
    assert specialised(text) == "DEVICE long made(float x) {\n    return x;\n}\n\nvoid kernel() { made(2); }\n"
    both = text.replace("made<D>(2);", "made<D>(2); made<SHORT>(3);")
    assert "template <Format F>" in specialised(both)


def test_a_function_that_is_said_to_be_for_other_kernels_goes() -> None:
    text = (
        "constexpr bool WHOLE = false;\n\n// !WHOLE: A float.\nDEVICE int f(float x) { return 1; }\n\n// WHOLE: A number.\nDEVICE int f(int x) {\n"
        "    return 2;\n}\n\n// WHOLE: a remark.\n//\n// Said of both.\nDEVICE int g() { return 3; }\n\nvoid kernel() { f(1.0f) + g(); }\n"
    )
    assert specialised(text) == (
        "// A float.\nDEVICE int f() { return 1; }\n\n// Said of both.\nDEVICE int g() { return 3; }\n\nvoid kernel() { f() + g(); }\n"
    )
    assert "// A number.\nDEVICE int f() {\n    return 2;" in specialised(text.replace("false", "true"))


def test_what_only_calls_another_is_left_out() -> None:
    text = "DEVICE int f(int x, int y) { return x + y; }\n\n// Only passes on.\nDEVICE int g(int x, int y) {\n    return f(x, y);\n}\n\nvoid kernel() { g(1, 2); }\n"
    assert specialised(text) == "DEVICE int f(int x, int y) { return x + y; }\n\nvoid kernel() { f(1, 2); }\n"
    assert "DEVICE int g" in specialised(text.replace("f(x, y)", "f(y, x)"))


def test_overloads_are_needed_or_not_together() -> None:
    text = "DEVICE int f(int x) { return x; }\nDEVICE int f(float x) { return f(int(x)); }\n\nvoid kernel() { g(); }\n"
    assert used(text) == "void kernel() { g(); }\n"
    assert used(text.replace("g()", "f(1)")).count("DEVICE") == 2


def test_parameters_are_kept_where_calls_do_not_fit() -> None:
    text = "DEVICE int f(int x, int y) { return x; }\n\nvoid kernel() { f(pair); f(1, 2); }\n"
    assert without_unused(text) == text


def test_arguments_are_split_outside_of_parentheses() -> None:
    assert split("a, b(c, d)[e, f], {g, h}", ",") == ["a", " b(c, d)[e, f]", " {g, h}"]
