"""See the module docstrings inside; import this folder as ``stridewright.layout``."""

if __name__ != "stridewright.layout":
    raise ImportError(f"this folder is imported as stridewright.layout, not as {__name__}: `import stridewright.layout`")
