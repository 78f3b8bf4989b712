"""Formats of other distributions, which ``Dataset.open_any()`` finds by entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple

from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, FormatPluginError, PlanError
from aiostream_data.formats.base import Format
from aiostream_data.formats.own_format import checked_format
from aiostream_data.formats.row_groups import TableFormat

GROUP: Final = "aiostream_data.formats"
"""Group of the entry points. Each one names a :class:`FormatPlugin`."""


@dataclass(frozen=True, kw_only=True)
class FormatPlugin:
    """A format, and how its files are recognized.

    Attributes:
        format: The format.
        suffixes: Suffixes of file names in lower case, without the dot.
        magics: Bytes with which the decompressed content of a file can begin. If given, a file that begins with other
            bytes is not of this format.
    """

    format: Format | TableFormat
    suffixes: tuple[str, ...] = ()
    magics: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        checked_format(self.format)
        for name, kind in (("suffixes", str), ("magics", bytes)):
            given = getattr(self, name)
            if not isinstance(given, tuple) or not all(isinstance(one, kind) for one in given):
                raise ArgumentTypeError(f"{name} must be a tuple of {kind.__name__}, got {shown(given)}")
        for suffix in self.suffixes:
            if not suffix or suffix != suffix.lower() or "." in suffix:
                raise PlanError(f"suffixes must be in lower case and without a dot, got {shown(suffix)}")
        if not all(self.magics):
            raise PlanError("magics must not be empty")
        if not self.suffixes and not self.magics:
            raise PlanError("a format plugin needs suffixes or magics, by which its files are recognized")

    def accepts(self, content: bytes) -> bool:
        """Return True if a file of this format can begin with ``content``."""
        return not self.magics or content.startswith(self.magics)


class FoundPlugin(NamedTuple):
    """A plugin, and the name of its distribution."""

    plugin: FormatPlugin
    distribution: str


def installed_plugins() -> list[FoundPlugin]:
    """Import all format plugins that are installed, in the order of their names.

    Raises:
        FormatPluginError: A plugin cannot be imported, or is not a :class:`FormatPlugin`.
    """
    entries = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    return [FoundPlugin(_loaded(entry), _distribution(entry)) for entry in entries]


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def _loaded(entry: EntryPoint) -> FormatPlugin:
    try:
        plugin = entry.load()
    except Exception as error:
        raise FormatPluginError(
            _distribution(entry), entry.name, f"{entry.value} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(plugin, FormatPlugin):
        raise FormatPluginError(
            _distribution(entry), entry.name, f"{entry.value} must be a FormatPlugin, got {shown(plugin)}"
        )
    return plugin


def named(plugins: Sequence[FoundPlugin], suffix: str) -> FormatPlugin | None:
    """Return the plugin of files with this suffix, or None.

    Raises:
        PlanError: Several plugins have this suffix.
    """
    return _only(plugins, lambda plugin: suffix in plugin.suffixes, f"the suffix .{suffix}")


def marked(plugins: Sequence[FoundPlugin], content: bytes) -> FormatPlugin | None:
    """Return the plugin whose ``magics`` begin ``content``, or None.

    Raises:
        PlanError: Several plugins have such a magic.
    """
    return _only(plugins, lambda plugin: content.startswith(plugin.magics), f"the first bytes {content[:16]!r}")


def _only(plugins: Sequence[FoundPlugin], fits: Callable[[FormatPlugin], bool], what: str) -> FormatPlugin | None:
    fitting = [found for found in plugins if fits(found.plugin)]
    if len({found.plugin for found in fitting}) > 1:
        names = ", ".join(f"{found.plugin.format.name} of {found.distribution}" for found in fitting)
        raise PlanError(f"several installed formats have {what}: {names}. Call from_format() with one of them.")
    return fitting[0].plugin if fitting else None
