"""Pieces of PTX text: numbers, and lists split at their commas."""

from __future__ import annotations


def split_commas(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    if "," not in text:
        return [text]
    if "{" not in text and "[" not in text and "(" not in text:
        return text.split(",")
    pieces, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        if letter in "{[(":
            depth += 1
        elif letter in "}])":
            depth -= 1
        elif letter == "," and not depth:
            pieces.append(text[start:position])
            start = position + 1
    pieces.append(text[start:])
    return pieces


def parse_number(text: str) -> int | float:
    """An immediate: decimal, 0x, 0b, octal, 0f (bits of an f32), 0d (bits of an f64), or a decimal float.

    >>> parse_number("0f3F800000"), parse_number("-0x10"), parse_number("017U")
    (1065353216, -16, 15)
    """
    sign = -1 if text[0] == "-" else 1
    body = text.lstrip("+-").rstrip("U")
    if body[:2] in ("0f", "0F", "0d", "0D"):
        return int(body[2:], 16)
    if body[:2] in ("0x", "0X"):
        return sign * int(body, 16)
    if body[:2] in ("0b", "0B"):
        return sign * int(body, 2)
    if "." in body or "e" in body:
        return sign * float(body)
    return sign * int(body, 8 if len(body) > 1 and body[0] == "0" else 10)
