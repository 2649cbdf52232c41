"""See the module docstrings inside; import this folder as ``stridewright.codegen``."""

if __name__ != "stridewright.codegen":
    raise ImportError(
        f"this folder is imported as stridewright.codegen, not as {__name__}: `import stridewright.codegen`"
    )
