"""The parts of ``benchmarks/probe_hopper.py``: device access, kernels, and one module a question."""
