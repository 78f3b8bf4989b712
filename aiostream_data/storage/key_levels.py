"""Decide how the keys that match a pattern are found in a flat key space, level by level; pure.

A store lists the keys that begin with some text, in pages, and can fold what follows the next ``/`` into one line.
So a pattern is taken apart at its slashes: everything up to the first wildcard is asked for literally, a wildcard
in the last segment needs one folded listing, and one before that asks for the directories and goes on in those
that match.
"""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

MOST_PREFIXES = 16
"""A set such as ``[0-9]`` is listed as so many prefixes at once, at most."""

FLAT_ABOVE = 16
"""Where a page of keys shows more directories than this, each holds little, and listing on without folding takes
fewer requests, and no longer, than a listing of every directory."""

_MAGIC = re.compile(r"[*?\[]")
_SET = re.compile(r"\[([^\]!^\[][^\]\[]*)\]")


class LevelStep(NamedTuple):
    """What to list next.

    Attributes:
        prefixes: What keys begin with; to be listed at once. None is the beginning of another.
        directory: What all of them have in common up to the last ``/``.
        segment: The first segment with a wildcard; "" where the rest has none, and the one prefix is a key.
        rest: What follows it, without ``/`` in front; "" for the last segment.
    """

    prefixes: tuple[str, ...]
    directory: str
    segment: str
    rest: str

    @property
    def is_last(self) -> bool:
        """True where matches have no ``/`` behind the directory."""
        return not self.rest and self.segment != "**"

    @property
    def is_deep(self) -> bool:
        """True where matches may have any number of ``/`` behind the directory."""
        return self.segment == "**"


def next_step(directory: str, pattern: str) -> LevelStep:
    """Return how to go on below ``directory`` (taken literally; "" or ending with ``/``) with the rest of a pattern."""
    segments = pattern.split("/")
    for index, segment in enumerate(segments):
        if _MAGIC.search(segment):
            above = directory + "".join(part + "/" for part in segments[:index])
            heads = ("",) if segment == "**" else _heads(segment)
            return LevelStep(tuple(above + head for head in heads), above, segment, "/".join(segments[index + 1 :]))
    return LevelStep((directory + pattern,), directory, "", "")


def lists_flat(step: LevelStep, keys: list[str]) -> bool:
    """Decide from the first page of keys whether to go on without folding directories."""
    at = len(step.directory)
    return len({key[at:].partition("/")[0] for key in keys}) > FLAT_ABOVE


def _heads(segment: str) -> tuple[str, ...]:
    """Return the texts with which whatever matches a segment begins, none of them the beginning of another."""
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
    """Return the characters of a plain set at a position, and where it ends; None for anything less plain."""
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
