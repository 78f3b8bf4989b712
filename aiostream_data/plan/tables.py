"""Source node of files with a directory of row groups, such as Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiostream_data.plan.base import Node
from aiostream_data.safe_url import safe_url


class TableFormatLike(Protocol):
    """Properties of a format that plans use; see :class:`aiostream_data.formats.row_groups.TableFormat`."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class TableFile(Node):
    """Source that emits the rows of one file.

    Attributes:
        url: URL of the file.
        format: Format of the file, with the columns to read.
        files: Object that is the same for all files whose columns must be equal.
    """

    url: str = field(repr=False)
    format: TableFormatLike
    storage_options: Mapping[str, Any] = field(repr=False)
    files: object = field(repr=False)

    @property
    def label(self) -> str:
        return f"read_{self.format.name}"

    def detail(self) -> str:
        return repr(safe_url(self.url))
