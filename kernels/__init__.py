"""See the module docstrings inside; import this folder as ``stridewright.kernels``."""

if __name__ != "stridewright.kernels":
    raise ImportError(
        f"this folder is imported as stridewright.kernels, not as {__name__}: `import stridewright.kernels`"
    )
