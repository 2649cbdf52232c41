"""A user's expression is read as C++ reads it: the compiler takes what is taken here, and refuses what is refused."""

from __future__ import annotations

import inspect
import sys

import pytest

from stridewright.kernels.expression import FUNCTIONS, VALUES, ExpressionError, Term, in_float32, parse


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x +", "ends where a value is wanted"),
        ("", "is empty"),
        ("  ", "is empty"),
        ("x x", "'x' at 2 follows a value; an operator is wanted there"),
        ("x 1.0f", "'1.0f' at 2 follows a value"),
        ("* x", "'*' at 0 stands where a value is wanted"),
        ("x + * 2.0f", "'*' at 4 stands where a value is wanted"),
        ("x ? 1.0f", "'?' at 2 has no ':'"),
        ("x : 1.0f", "':' at 2 follows a value"),
        ("x, x", "',' at 1 follows a value"),
        ("()", "')' at 1 stands where a value is wanted"),
        ("(x 2.0f)", "'2.0f' at 3 stands where the '(' at 0 should be closed"),
        ("fmaxf(x)", "fmaxf at 0 takes 2 values, and 1 are given"),
        ("expf()", "expf at 0 takes 1 value, and 0 are given"),
        ("1.0f + expf(x, x)", "expf at 7 takes 1 value, and 2 are given"),
        ("fmaxf(x,)", "')' at 8 stands where a value is wanted"),
        ("x % 2", "'%' at 2 divides whole numbers"),
        ("row % 2.0f", "'%' at 4 divides whole numbers"),
        ("row / 0", "'/' at 4 divides a whole number by 0"),
        ("1f * x", "'1f' at 0 is no number of C++; 1.0f is"),
        ("1.5u * x", "'1.5u' at 0 is no number of C++"),
        ("010 + x", "'010' at 0 is octal in C++; 10 is decimal"),
        ("4294967296 + row", "has more than 31 bits"),
        ("x * 1e39", "'1e39' at 4 is no float32"),
        ("x * 1e-46f", "'1e-46f' at 4 is no float32"),
        ("x * 1e-400", "'1e-400' at 4 is no float32, whose numbers lie between 1.4e-45 and 3.4028235e+38; nearest 0.0"),
        (
            "x * 1e400",
            "'1e400' at 4 is no float32, whose numbers lie between 1.4e-45 and 3.4028235e+38; nearest 3.4028235e+38",
        ),
        ("x + " + "9" * 5000, "'9999999999999999999999999999999999999999...' at 4 is no float32"),
        ("x + " + "9" * 30, "has more than 31 bits"),
        ("0" * 5000, "'0000000000000000000000000000000000000000...' at 0 is octal in C++; 0 is decimal"),
        ("a" * 5000, "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...' is no value of an epilogue"),
        ("--x", "'--' at 0 changes a value in C++, and an expression changes none; '- -', apart, are two signs"),
        ("++x", "'++' at 0 changes a value in C++"),
        ("x--1", "'--' at 1 changes a value in C++"),
        ("x++1", "'++' at 1 changes a value in C++"),
        ("x ---1", "'--' at 2 changes a value in C++"),
        ("x * \u0663", "'\u0663' at 4 is none of the signs"),
        ("x\u00a0+ 1", "'\\xa0' at 1 is none of the signs"),
        ("+".join(["x"] * 5000), "has 9999 characters, and an expression may have 8192"),
        ("(" * 3000 + "x" + ")" * 3000, "is nested more than 128 deep"),
        ("- " * 3000 + "x", "is nested more than 128 deep"),
        ("x = 1.0f", "'=' at 2 is none of the signs"),
        ("x; y", "';' at 1 is none of the signs"),
        ("x(1)", "'x' is no function of an epilogue"),
        ("expf", "'expf' is no value of an epilogue"),
        ("__trap()", "'__trap' is no function"),
        ("((x)", "1 '(' are not closed"),
        ("x)", "')' at 1 closes nothing"),
    ],
)
def test_what_does_not_belong_there_is_named_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert words in str(caught.value)


def written(term: Term) -> str:
    """With every part in parentheses."""
    parts = [written(part) for part in term.parts]
    if term.what == "?:":
        return "({}?{}:{})".format(*parts)
    if term.what in ("minus", "not"):
        return {"minus": "(-{})", "not": "(!{})"}[term.what].format(*parts)
    if term.what in FUNCTIONS:
        return f"{term.what}({','.join(parts)})"
    return term.name or (f"({parts[0]}{term.what}{parts[1]})" if parts else f"{term.number:g}")


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("x + c * bias", "(x+(c*bias))"),
        ("x - c - bias", "((x-c)-bias)"),
        ("x / c * bias", "((x/c)*bias)"),
        ("-x * c", "((-x)*c)"),
        ("!x == c", "((!x)==c)"),
        ("x < c == bias", "((x<c)==bias)"),
        ("x + c < bias - 1", "((x+c)<(bias-1))"),
        ("x || c && bias", "(x||(c&&bias))"),
        ("x ? c : bias ? 1 : 2", "(x?c:(bias?1:2))"),
        ("x < 0 ? c : bias + 1", "((x<0)?c:(bias+1))"),
        ("x ? c ? 1 : 2 : 3", "(x?(c?1:2):3)"),
        ("- - x", "(-(-x))"),
        ("+x", "x"),
        ("fmaxf(x, c + 1) * 2", "(fmaxf(x,(c+1))*2)"),
    ],
)
def test_operators_bind_as_in_c(text: str, grouped: str) -> None:
    assert written(parse(text)) == grouped


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("row", "unsigned"), ("row + 1", "unsigned"), ("row * 2.0f", "float"), ("1 + 2", "int"), ("x < 1", "int"),
        ("row < col ? row : 1", "unsigned"), ("!row", "int"), ("-row", "unsigned"), ("float(row)", "float"), ("3u", "unsigned"),
    ],
)  # fmt: skip
def test_kinds_are_those_of_c(text: str, kind: str) -> None:
    assert parse(text).kind == kind


def test_the_values_that_are_read_are_known() -> None:
    assert parse(" + ".join(VALUES)).names == set(VALUES)
    assert parse("1.0f").names == frozenset()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0.1 * x", "0.1f * x"),
        ("fmaxf(x, .5*x)+1.", "fmaxf(x, .5f*x)+1.f"),
        ("x > 1e-3 ? 2E+4 : -1.5e2", "x > 1e-3f ? 2E+4f : -1.5e2f"),
        ("0.1f * x + 2.0F", "0.1f * x + 2.0F"),
        ("row / 2 + 7u * col % 3", "row / 2 + 7u * col % 3"),
        ("log1pf(x) + 1e1", "log1pf(x) + 1e1f"),
    ],
)
def test_numbers_with_a_point_or_an_exponent_are_written_as_float32(text: str, written: str) -> None:
    assert in_float32(text) == written
    assert parse(written) == parse(text)
    assert in_float32(written) == written


@pytest.mark.parametrize(
    "text", ["- -x", "-(-x)", "x - -1", "x + +1", "x -+ 1", "!!x", "0e-400 + x", "0.0f + x", "x + 0e9"]
)
def test_signs_apart_and_noughts_are_what_they_are_in_cpp(text: str) -> None:
    parse(text)


def test_long_sums_and_rows_of_choices_are_read_whatever_their_length() -> None:
    assert parse("+".join(["x"] * 4000)).names == {"x"}
    assert parse("".join(f"row == {row} ? bias : " for row in range(300)) + "x").names == {"bias", "row", "x"}
    assert parse("(" * 100 + "x" + ")" * 100).names == {"x"}


def test_choices_bind_to_the_right_and_the_middle_holds_a_whole_one() -> None:
    assert written(parse("x ? acc : c ? bias : beta")) == "(x?acc:(c?bias:beta))"
    assert written(parse("x ? acc ? c : bias : beta")) == "(x?(acc?c:bias):beta)"


def test_a_caller_deep_in_calls_is_told_of_depth_and_no_internal_error() -> None:
    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        else:
            parse("(" * 100 + "x" + ")" * 100)

    with pytest.raises(ExpressionError, match="is nested more than"):
        deeper(sys.getrecursionlimit() - len(inspect.stack()) - 150)
