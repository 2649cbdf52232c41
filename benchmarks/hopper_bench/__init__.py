"""The parts of benchmarks/hopper_shapes.py, one for each of its modes."""
