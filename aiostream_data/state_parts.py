"""One value inside a state, with the path that names it: what schemas of states are written in.

How this works. A state is a file, so nothing in it is trusted. Whoever writes a part of a state also has a schema of
that part: a function that takes a :class:`Part` and asks it for fields, lists and numbers in a range. The first
value that does not fit raises :class:`.DamagedStateError` with its path, what was expected, and what was found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiostream_data.errors import DamagedStateError, StateMismatchError

MAX_COUNT: Final = (1 << 53) - 1
"""Largest number of rows, elements or bytes in a state. JSON keeps such a number exactly."""

MAX_EPOCH: Final = 10**300
"""Largest epoch in a state: of sources within many repetitions for ever, see ``ENDLESS``."""

MAX_SEED_BITS: Final = 4096
"""Bits of the largest seed. Python writes larger integers as text only when asked to."""

MAX_TEXT: Final = 200
"""Characters of the longest name in a state."""

STATE: Final = "state"
"""What a state is called in messages, unless it is one of a list."""

_SHOWN: Final = 60


@dataclass(frozen=True)
class Part:
    """One value inside a state.

    Attributes:
        value: Anything.
        path: Its place, as Python would write it: ``state["position"]["input"]``.
    """

    value: Any
    path: str

    def refused(self, expected: str) -> DamagedStateError:
        """Return the error of a value that is not what is expected, e.g. "must be a list"."""
        return DamagedStateError(self.path, f"{expected}, got {brief(self.value)}")

    def refused_kind(self, found: object, expected: str) -> DamagedStateError:
        """Return the error of the place of another operator."""
        return DamagedStateError(self.path, f"holds the place of {brief(found)} where this plan has {expected!r}")

    def entry(self, key: str) -> Part:
        """Return the value under a key of a dict.

        Raises:
            DamagedStateError: This is no dict, or the key is missing.
        """
        if not isinstance(self.value, Mapping):
            raise self.refused("must be a dict")
        if key not in self.value:
            raise DamagedStateError(self.path, f"must have the key {key!r}, got {_keys(self.value)}")
        return Part(self.value[key], f'{self.path}["{key}"]')

    def fields(self, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Part]:
        """Return the values of a dict that has these keys and no others.

        Args:
            optional: Keys that may be missing.

        Raises:
            DamagedStateError: This is no dict, a key is missing, or there is another one.
        """
        found = {name: self.entry(name) for name in names}
        found |= {name: self.entry(name) for name in optional if name in self.value}
        if not names and not isinstance(self.value, Mapping):
            raise self.refused("must be a dict")
        if len(self.value) > len(found):
            expected = ", ".join(map(repr, (*names, *optional)))
            raise DamagedStateError(self.path, f"must have the keys {expected} only, got {_keys(self.value)}")
        return found

    def items(self, least: int = 0, most: int | None = None) -> list[Part]:
        """Return the entries of a list.

        Raises:
            DamagedStateError: This is no list, or has fewer than ``least`` or more than ``most`` entries.
        """
        self.listed()
        if len(self.value) < least or (most is not None and len(self.value) > most):
            raise self.refused(f"must be a list of {_range(least, most)} entries")
        return [Part(value, f"{self.path}[{number}]") for number, value in enumerate(self.value)]

    def listed(self) -> list[Any]:
        """Return a list as it is."""
        if not isinstance(self.value, (list, tuple)):
            raise self.refused("must be a list")
        return list(self.value)

    def integer(self, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return an integer in a range; ``True`` is none.

        Raises:
            DamagedStateError: This is no integer, or not in the range.
        """
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.refused(f"must be an integer {_between(least, most)}")
        return self.value

    def epoch(self) -> int:
        """Return the number of an epoch."""
        return self.integer(0, MAX_EPOCH)

    def weight(self) -> float:
        """Return a finite number of at least 0."""
        if type(self.value) not in (int, float) or not 0 <= self.value <= 1e308 or math.isnan(self.value):
            raise self.refused("must be a finite number of at least 0")
        return float(self.value)

    def flag(self) -> bool:
        """Return a bool."""
        if type(self.value) is not bool:
            raise self.refused("must be true or false")
        return self.value

    def text(self, most: int = MAX_TEXT) -> str:
        """Return a text of at most ``most`` characters."""
        if not isinstance(self.value, str) or len(self.value) > most:
            raise self.refused(f"must be a text of at most {most} characters")
        return self.value


def seed_in(part: Part) -> int:
    """Return a seed: an integer of any sign, up to 4096 bits."""
    if type(part.value) is not int or part.value.bit_length() > MAX_SEED_BITS:
        raise part.refused("must be an integer")
    return part.value


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Name one state of a list in errors about it: ``state[2]``. With the name ``state`` nothing changes."""
    try:
        yield
    except StateMismatchError as error:
        if name == STATE:
            raise
        if isinstance(error, DamagedStateError):
            raise DamagedStateError(f"{name}{error.path.removeprefix(STATE)}", error.problem) from None
        raise StateMismatchError([f"{name}: {one}" for one in error.differences], error.cure) from None


def path_of(root: Any, value: Any, path: str) -> str | None:
    """Return the path of the very object ``value`` inside ``root``, or None."""
    pending = [(root, path)]
    while pending:
        found, where = pending.pop()
        if found is value:
            return where
        if isinstance(found, Mapping):
            pending += [(part, f'{where}["{key}"]') for key, part in found.items()]
        elif isinstance(found, (list, tuple)):
            pending += [(part, f"{where}[{number}]") for number, part in enumerate(found)]
    return None


def brief(value: object) -> str:
    """Describe a value in a few characters, however large it is."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (str, bytes)):
        text = repr(value[:_SHOWN])
        return text if len(value) <= _SHOWN else f"{text}... of {len(value)} characters"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)} entries"
    return f"a dict of {len(value)} keys" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def _keys(value: Mapping[Any, Any]) -> str:
    names = [brief(key) for key in list(value)[:8]]
    return (", ".join(names) + (", ..." if len(value) > len(names) else "")) or "no keys"


def _between(least: int, most: int) -> str:
    if least == most:
        return f"equal to {least}"
    return f"of at least {least}" if most >= MAX_COUNT else f"from {least} to {most}"


def _range(least: int, most: int | None) -> str:
    if least == most:
        return str(least)
    return f"at least {least}" if most is None else f"{least} to {most}"
