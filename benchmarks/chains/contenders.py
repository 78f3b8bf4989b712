"""The libraries, and the modules with their chains."""

from __future__ import annotations

from typing import Final

from benchmarks.chains.sizes import FEW

OURS: Final = "aiostream_data"

CONTENDERS: Final = {
    OURS: ("ours", "ours_operators"),
    "tf.data": ("tf_data", "tf_data_operators"),
    "Grain": ("grain_chains",),
    "torchdata": ("torchdata_chains",),
    "Hugging Face": ("hugging_face",),
}
"""Modules of this package by the name of the library."""

PACKAGES: Final = ("aiostream-data", "numpy", "tensorflow-cpu", "grain", "torchdata", "torch", "datasets")

READ: Final = {"reduce": FEW, "group_by_reducer": FEW}
"""Rows that a chain reads, where it gives few elements."""

ANY_ORDER: Final = {
    "random, batch",
    "shuffle, batch",
    "sample_from, batch",
    "sample_from at random, batch",
    "weighted_flat_map, batch",
    "rejection_resample, batch",
    "pack",
    "list_files",
}
"""Chains whose elements the libraries draw, choose or lay out differently: these are not compared."""
