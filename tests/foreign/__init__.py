"""GEMM kernels that others wrote or compiled, executed by the emulator."""
