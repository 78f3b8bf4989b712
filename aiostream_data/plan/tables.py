"""Source node of files with a directory of row groups, such as Parquet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeGuard

from aiostream_data.failing.policies import OnError
from aiostream_data.plan.base import Node
from aiostream_data.plan.functions import NO_IDENTITY
from aiostream_data.safe_url import safe_url


class TableFormatLike(Protocol):
    """Properties of a format that plans use; see :class:`aiostream_data.formats.row_groups.TableFormat`."""

    @property
    def name(self) -> str: ...


class FilesToken:
    """Stands for all files of one data set, whose columns must be equal.

    What a loader knows of the files has the lifetime of the token: a function can return a data set for each element.
    """

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, kw_only=True)
class ReadsFile:
    """Base class of functions from the URL of a file to the data set of its rows.

    Attributes:
        on_error: Error policy for damaged and missing files; None for the policy of ``open()``.
    """

    on_error: OnError = field(default=None, repr=False, compare=False, metadata=NO_IDENTITY)

    def __call__(self, url: str) -> Any:
        """Return the data set of the rows of a file."""
        raise NotImplementedError

    def node(
        self, url: str, format: TableFormatLike, storage_options: Mapping[str, Any], files: FilesToken
    ) -> TableFile:
        """Return the source of one file with the error policy; see :class:`TableFile`."""
        return TableFile(url=url, format=format, storage_options=storage_options, files=files, on_error=self.on_error)

    def with_default_policy(self, on_error: OnError) -> Self:
        """Return the function with this error policy if it has none of its own."""
        return replace(self, on_error=on_error) if self.on_error is None else self


def reads_files(function: Callable[..., Any]) -> TypeGuard[ReadsFile]:
    """Return True if the function of a node reads files with a directory of row groups."""
    return isinstance(function, ReadsFile)


@dataclass(frozen=True, eq=False, kw_only=True)
class TableFile(Node):
    """Source that emits the rows of one file.

    Attributes:
        url: URL of the file.
        format: Format of the file, with the columns to read.
        files: Token of the data set of the file.
        on_error: Error policy for a damaged or missing file, and for damaged row groups.
    """

    url: str = field(repr=False)
    format: TableFormatLike
    storage_options: Mapping[str, Any] = field(repr=False)
    files: FilesToken = field(repr=False)
    on_error: OnError = None

    @property
    def label(self) -> str:
        return f"read_{self.format.name}"

    def detail(self) -> str:
        return repr(safe_url(self.url))
