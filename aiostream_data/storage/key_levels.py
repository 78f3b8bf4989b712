"""Plan listings that find all object keys matching a pattern, one directory level after another. Does no I/O.

A store lists keys by prefix, in pages. In a folded listing, keys with another ``/`` after the prefix are replaced by
their directories. The text before the first wildcard of a pattern becomes the prefix. A wildcard in the last segment
needs one folded listing. For a wildcard in an earlier segment, the directories are listed, and the search continues in
the matching directories.
"""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

MOST_PREFIXES = 16
"""Maximum number of prefixes into which character sets such as ``[0-9]`` are expanded."""

FLAT_ABOVE = 16
"""If a page of keys contains more directories than this, the listing is not folded into directories.

If one page contains many directories, each directory has few keys. One flat listing then needs fewer requests than a
listing of each directory."""

_MAGIC = re.compile(r"[*?\[]")
_SET = re.compile(r"\[([^\]!^\[][^\]\[]*)\]")


class LevelStep(NamedTuple):
    """Next listing step in a search for object keys.

    Attributes:
        prefixes: Key prefixes to list concurrently. No prefix begins with another prefix.
        directory: Common beginning of the prefixes, up to the last ``/``.
        segment: First pattern segment with a wildcard, or "" if no segment has a wildcard. Without wildcards, the only
            prefix is a key.
        rest: Pattern text after ``segment``, without a leading ``/``, or "" if ``segment`` is the last segment.
    """

    prefixes: tuple[str, ...]
    directory: str
    segment: str
    rest: str

    @property
    def is_last(self) -> bool:
        """True if no matching key contains a ``/`` after the directory."""
        return not self.rest and self.segment != "**"

    @property
    def is_deep(self) -> bool:
        """True if matching keys may contain any number of ``/`` after the directory."""
        return self.segment == "**"


def next_step(directory: str, pattern: str) -> LevelStep:
    """Return the listing step for a pattern below ``directory``, which is "" or ends with ``/``."""
    segments = pattern.split("/")
    for index, segment in enumerate(segments):
        if _MAGIC.search(segment):
            above = directory + "".join(part + "/" for part in segments[:index])
            heads = ("",) if segment == "**" else _heads(segment)
            return LevelStep(tuple(above + head for head in heads), above, segment, "/".join(segments[index + 1 :]))
    return LevelStep((directory + pattern,), directory, "", "")


def lists_flat(step: LevelStep, keys: list[str]) -> bool:
    """Return True if the first page of keys contains so many directories that a flat listing needs fewer requests."""
    at = len(step.directory)
    return len({key[at:].partition("/")[0] for key in keys}) > FLAT_ABOVE


def _heads(segment: str) -> tuple[str, ...]:
    """Return literal prefixes that cover all names matching a pattern segment.

    No prefix begins with another prefix.
    """
    parts: list[list[str]] = []
    count, position = 1, 0
    while position < len(segment):
        found = _MAGIC.search(segment, position)
        stop = len(segment) if found is None else found.start()
        if stop > position:
            parts.append([segment[position:stop]])
        members = None if found is None else _members(segment, stop)
        if members is None or count * len(members[0]) > MOST_PREFIXES:
            break
        characters, position = members
        count *= len(characters)
        parts.append(characters)
    return tuple(sorted("".join(head) for head in product(*parts)))


def _members(segment: str, position: int) -> tuple[list[str], int] | None:
    """Return the characters and the end of the character set at ``position``, or None if the set is not simple."""
    found = _SET.match(segment, position)
    if found is None:
        return None
    text, members, at = found[1], set[str](), 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            first, last = ord(text[at]), ord(text[at + 2])
            if last - first >= MOST_PREFIXES:
                return None
            members.update(map(chr, range(first, last + 1)))
            at += 3
        else:
            members.add(text[at])
            at += 1
    return (sorted(members), found.end()) if members and not members & {"/", "-"} else None
