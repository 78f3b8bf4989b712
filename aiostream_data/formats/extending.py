"""Names for authors of record formats: interfaces, the base class of framers, and columns of records."""

from aiostream_data.formats.base import Format, Framer, Loss, Recovers, Recovery
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.plugins import FormatPlugin
from aiostream_data.rows.columns import VarColumn

__all__ = [
    "Bytes",
    "Cut",
    "CuttingFramer",
    "Format",
    "FormatPlugin",
    "Framer",
    "Loss",
    "Recovers",
    "Recovery",
    "VarColumn",
    "no_records",
]
