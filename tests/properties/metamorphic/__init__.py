"""Metamorphic tests: a drawn plan gives the same rows, draws, origins and hash however it is run."""
