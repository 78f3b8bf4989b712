"""What only a GPU can tell: one script that asks all of it, ``python -m benchmarks.gpu.run``."""
