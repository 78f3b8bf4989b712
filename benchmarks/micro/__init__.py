"""Timings of single kernels, in one thread."""
