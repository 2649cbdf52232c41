"""Shared memory as a warp meets it: lanes, banks, and the rows that ldmatrix and stmatrix move.

Numbers only; what an access costs is in ``layout.banks``.
"""

WARP = 32  # lanes (CUDA programming guide, compute capability 9.0 and 10.0)
BANKS = 32  # CUDA programming guide, "Shared Memory"; ncu's wavefronts on an H200 agree
BANK_BYTES = 4  # the same section: successive 32-bit words lie in successive banks
MATRIX_ROWS = 8  # rows of 16 bytes of one 8x8 matrix (PTX ISA 9.1, 9.7.14.5.15)
