"""The one exception of the layout algebra."""

from __future__ import annotations


class LayoutError(ValueError):
    """Raised where a layout, a coordinate or the result of an operation does not exist.

    The message says what was given, what is allowed and, where one exists, a counterexample.

    >>> from stridewright.layout import Layout, LayoutError
    >>> try:
    ...     Layout((4, 8), (1, 4, 32))
    ... except LayoutError as error:
    ...     print(error)
    the stride (1, 4, 32) does not have the form of the shape (4, 8)
    """
