"""Benchmarks: other loaders and ours on the same work, one process each; see README.md."""
