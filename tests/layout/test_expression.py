"""Layouts as C++: the expression is the layout, is minimal, and means in C++ what it means in Python."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_definitions import count, value

from stridewright.layout import (
    Layout,
    LayoutError,
    Swizzle,
    SwizzledLayout,
    compose,
    cpp_expression,
    index_expression,
    size,
)
from stridewright.layout.expression import Binary, Expression, Name, Number, operators


def random_case(
    rng: random.Random, number: int
) -> tuple[Layout | SwizzledLayout, list[str], dict[str, int] | None, list[int]]:
    """A layout, names for its coordinates or index, ranges or none, and the extent of each name's range."""

    def mode() -> tuple[Any, Any]:
        n = rng.randint(1, 3)
        shape = tuple(rng.choice((1, 2, 3, 4, 8, 5, 16)) for _ in range(n))
        stride = tuple(rng.choice((0, 1, 2, 3, 4, 8, 16, 32, 64, -1, 72, 6)) for _ in range(n))
        return (shape, stride) if n > 1 else (shape[0], stride[0])

    modes = [mode() for _ in range(rng.randint(1, 3))]
    layout: Layout | SwizzledLayout = Layout(tuple(m[0] for m in modes), tuple(m[1] for m in modes))
    if number % 2:
        b = rng.randint(0, 3)
        swizzle = Swizzle(b, rng.randint(0, 3), rng.choice((-1, 1)) * rng.randint(b, b + 2))
        layout = SwizzledLayout(swizzle, rng.choice((0, 0, 8, 5)), layout)
    if rng.random() < 0.4:
        names, extents = ["i"], [size(layout)]
    else:
        names, extents = ["a", "b", "c"][: len(modes)], [size(m) for m in layout]
    ranges = None
    if rng.random() < 0.5:
        extents = [rng.choice((n, max(1, n // 2), 2 * n)) for n in extents]
        ranges = dict(zip(names, extents, strict=True))
    return layout, names, ranges, extents


def offset(layout: Layout | SwizzledLayout, names: list[str], point: list[int]) -> int:
    plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
    if len(names) == 1 and len(plain) != 1:
        total = value(plain, point[0])
    else:
        total = sum([value(plain[k], c) for k, c in enumerate(point)])
    return layout.swizzle(total + layout.offset) if isinstance(layout, SwizzledLayout) else total


def test_the_expression_of_a_layout_is_the_layout() -> None:
    rng = random.Random(1)
    for number in range(1500):
        layout, names, ranges, extents = random_case(rng, number)
        expression = index_expression(layout, *names, ranges=ranges)
        text = str(expression)
        for _ in range(20):
            point = [rng.randrange(n) for n in extents]
            values = dict(zip(names, point, strict=True))
            want = offset(layout, names, point)
            assert expression.evaluate(values) == want, (layout, text)
            assert eval(text.replace("/", "//").replace("ll", ""), {}, values) == want, (layout, text)


@pytest.mark.parametrize(
    ("layout", "names", "want"),
    [
        ("(128,64):(64,1)", ["row", "column"], "(row << 6) + column"),
        ("(128,64):(64,1)", ["i"], "((i & 127) << 6) + (i >> 7)"),
        ("(4,8):(1,4)", ["i"], "i"),
        ("((4,8),2):((1,4),32)", ["i", "j"], "i + (j << 5)"),
        ("(4,8):(8,1)", ["i"], "((i & 3) << 3) + (i >> 2)"),
        ("(3,5):(7,1)", ["i"], "i % 3 * 7 + i / 3"),
        ("(64,32):(1,72)", ["i"], "i + ((i >> 6) << 3)"),
        ("(2,4,8):(1,16,2)", ["i"], "(i & 1) + ((i & 6) << 3) + ((i >> 3) << 1)"),
        ("(8,4):(1,0)", ["i"], "i & 7"),
        ("(8,4):(0,1)", ["i"], "i >> 3"),
        ("4:0", ["i"], "0"),
        ("(1,1):(5,7)", ["i", "j"], "0"),
        ("4:3", ["i"], "i * 3"),
        ("((8,16),(64,1)):((64,512),(1,0))", ["row", "column"], "(row << 6) + column"),
    ],
)
def test_expressions_are_minimal(layout: str, names: list[str], want: str) -> None:
    got = cpp_expression(Layout.parse(layout), *names)
    assert got.replace("0x7f", "127") == want


def test_a_range_makes_divisions_and_masks_idle() -> None:
    layout = Layout((4, 8), (8, 1))
    assert cpp_expression(layout, "i", ranges={"i": 4}) == "i << 3"
    assert cpp_expression(layout, "i", ranges={"i": 5}) == "((i & 3) << 3) + (i >> 2)"
    assert cpp_expression(Layout((4, 1), (1, 0)), "i", ranges={"i": 16}) == "i & 3"
    assert cpp_expression(Layout((4, 1), (1, 0)), "i") == "i"
    assert cpp_expression(layout, "i", ranges={"i": (-4, 32)}) == "(i & 3) * 8 + (i >> 2)"
    for point in range(-4, 32):
        e = index_expression(layout, "i", ranges={"i": (-4, 32)})
        assert e.evaluate({"i": point}) == value(layout, point)
    with pytest.raises(LayoutError, match="may be negative"):
        cpp_expression(Layout((3, 5), (7, 1)), "i", ranges={"i": (-4, 15)})
    with pytest.raises(LayoutError, match="empty"):
        cpp_expression(layout, "i", ranges={"i": 0})


@pytest.mark.parametrize(
    ("swizzle", "layout", "names", "want"),
    [
        ((3, 3, 3), "(128,64):(64,1)", ["row", "column"], "((row << 6) + column) ^ ((row & 7) << 3)"),
        ((3, 4, 3), "((8,8),128,5):((128,1024),1,24576)", ["row", "byte", "stage"],
         "((row << 7) + byte + stage * 24576) ^ ((row & 7) << 4)"),
        ((0, 4, 3), "(8,8):(8,1)", ["i", "j"], "(i << 3) + j"),
        ((3, 3, 3), "(8,8):(1,8)", ["i", "j"], "i + (j << 3)"),
    ],
)  # fmt: skip
def test_a_swizzle_reads_only_the_coordinates_that_reach_its_bits(
    swizzle: Any, layout: str, names: list[str], want: str
) -> None:
    assert cpp_expression(compose(Swizzle(*swizzle), Layout.parse(layout)), *names) == want


def test_names_that_do_not_fit_are_refused() -> None:
    for names in ([], ["a", "b", "c"]):
        with pytest.raises(LayoutError, match="one name for its index or 2"):
            cpp_expression(Layout((4, 8)), *names)
    with pytest.raises(LayoutError):
        cpp_expression((4, 8), "i")


OPERATORS = ("*", "+", "-", "<<", ">>", "&", "^", "|", "/", "%")


@st.composite
def expressions(draw: Any, depth: int = 4) -> Expression:
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(st.sampled_from([Name("x"), Name("y")]), st.integers(1, 9).map(Number)))  # type: ignore[no-any-return]
    operator = draw(st.sampled_from(OPERATORS))
    right = (
        draw(st.integers(1, 5).map(Number))
        if operator in ("<<", ">>", "/", "%")
        else draw(expressions(depth=depth - 1))
    )
    return Binary(operator, draw(expressions(depth=depth - 1)), right)


@given(expressions(), st.integers(0, 50), st.integers(0, 50))
def test_what_is_printed_means_the_tree(e: Expression, x: int, y: int) -> None:
    # Python ranks these operators as C++ does, and writes the rounding quotient //.
    assert eval(str(e).replace("/", "//"), {}, {"x": x, "y": y}) == e.evaluate({"x": x, "y": y})


def strip_each_pair(text: str) -> list[str]:
    found = []
    for i, c in enumerate(text):
        if c == "(":
            level = 0
            for j in range(i, len(text)):
                level += {"(": 1, ")": -1}.get(text[j], 0)
                if level == 0:
                    found.append(text[:i] + text[i + 1 : j] + text[j + 1 :])
                    break
    return found


@given(expressions(depth=3))
def test_no_parentheses_are_redundant_but_those_that_compilers_ask_for(e: Expression) -> None:
    text = str(e)
    if any(c in text for c in "<>&^|"):
        return
    points = [(x, y) for x in (1, 7, 12, 50) for y in (2, 3, 11, 29)]
    for shorter in strip_each_pair(text):
        assert any(
            eval(shorter.replace("/", "//"), {}, {"x": x, "y": y}) != e.evaluate({"x": x, "y": y}) for x, y in points
        ) or _same_by_chance(shorter, text), (text, shorter)


def _same_by_chance(shorter: str, text: str) -> bool:
    """Numbers can make a needed pair look idle, as in (x + 0) * 1; names cannot."""
    import ast

    return ast.dump(ast.parse(shorter.replace("/", "//"), mode="eval")) != ast.dump(
        ast.parse(text.replace("/", "//"), mode="eval")
    )


def test_operators_are_counted() -> None:
    assert operators(index_expression(Layout((4, 8), (8, 1)), "i")) == 4


def test_symbolic_sizes_are_printed_by_name() -> None:
    from stridewright.layout import dimension

    n, m = dimension("n", multiple_of=16), dimension("m")
    assert cpp_expression(Layout((n, m), (m, 1)), "i", "j") == "i * m + j"
    assert cpp_expression(Layout((n, m), (m, 1)), "i") == "i % n * m + i / n"
    assert (
        cpp_expression(Layout(((16, n / 16), 8), ((1, 128), 16)), "i", "j") == "(i & 15) + ((i >> 4) << 7) + (j << 4)"
    )
    assert cpp_expression(Layout((4, 8), (n / 16, 2 * m)), "i", "j") == "i * (n / 16) + j * 2 * m"


def compiler() -> str:
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no C++ compiler (g++ or clang++) on PATH")
    return found


def test_compiled_cpp_agrees_with_python(tmp_path: Path) -> None:
    found = compiler()
    rng = random.Random(5)
    lines = ["#include <cstdio>", "using i64 = long long;"]
    calls, wanted = [], []
    for number in range(150):
        layout, names, ranges, extents = random_case(rng, number)
        text = cpp_expression(layout, *names, ranges=ranges)
        parameters = ", ".join(f"i64 {name}" for name in names)
        unused = " ".join(f"(void){name};" for name in names)
        lines.append(f"static i64 f{number}({parameters}) {{ {unused} return {text}; }}")
        for _ in range(12):
            point = [rng.randrange(n) for n in extents]
            calls.append(f'  std::printf("%lld\\n", f{number}({", ".join(map(str, point))}));')
            wanted.append(offset(layout, names, point))
    source = tmp_path / "layouts.cpp"
    source.write_text("\n".join([*lines, "int main() {", *calls, "}"]) + "\n")
    program = tmp_path / "layouts"
    subprocess.run([found, "-O0", "-std=c++17", "-Wall", "-Werror", "-o", program, source], check=True, timeout=120)
    printed = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert [int(line) for line in printed] == wanted
    assert count((len(wanted),)) == 150 * 12
