"""How much each chain gives, the same for every library."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

Folder: TypeAlias = Path

RECORDS: Final = 80_000
"""Records in the files of each format."""

FILES: Final = 8

MANY: Final = 400_000
"""Elements of a chain that ends in batches."""

SINGLE: Final = 40_000
"""Elements of a chain that hands over single elements."""

BATCH: Final = 128
"""Elements of a batch."""

FEW: Final = 50_000
"""Elements of a chain whose operator costs much for each of them."""
