"""Names for authors of formats: interfaces, the base class of framers, and columns of records."""

from aiostream_data.formats.base import Format, Framer, Loss, Recovers, Recovery
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.plugins import FormatPlugin
from aiostream_data.formats.row_groups import Directory, RowGroup, Steps, TableFormat, TableRows
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import ByteRange

__all__ = [
    "ByteRange",
    "Bytes",
    "Column",
    "Cut",
    "CuttingFramer",
    "Directory",
    "Format",
    "FormatPlugin",
    "Framer",
    "Loss",
    "Recovers",
    "Recovery",
    "RowGroup",
    "Steps",
    "TableFormat",
    "TableRows",
    "VarColumn",
    "no_records",
]
