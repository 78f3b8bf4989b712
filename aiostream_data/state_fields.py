"""Validate each value of a saved state.

A saved state comes from a file and is not trusted. Every module that writes a part of a state also validates this part.
Modules read fields, lists and numbers of a state through the class :class:`Part`. The first invalid value raises
:class:`.DamagedStateError` with the path of the value, the expected value and the value found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiostream_data.errors import DamagedStateError, StateMismatchError

MAX_COUNT: Final = (1 << 53) - 1
"""Largest number of rows, elements or bytes in a state. Every JSON parser reads integers up to this number exactly."""

MAX_EPOCH: Final = 10**300
"""Largest epoch number in a state. Sources inside nested infinite repeats have large epoch numbers; see ``ENDLESS``."""

MAX_SEED_BITS: Final = 4096
"""Maximum size of a seed in bits. By default, Python refuses to convert much larger integers to text."""

MAX_TEXT: Final = 200
"""Maximum length of a name in a state, in characters."""

STATE: Final = "state"
"""Name of a saved state in error messages. A state in a list of states is named by its index, such as ``state[2]``."""

_SHOWN: Final = 60


@dataclass(frozen=True)
class Part:
    """One value inside a state.

    Attributes:
        value: The value, which is not validated yet.
        path: Location of the value as a Python expression, such as ``state["position"]["input"]``.
    """

    value: Any
    path: str

    def refused(self, expected: str) -> DamagedStateError:
        """Return the error for an invalid value. ``expected`` is a phrase such as "must be a list"."""
        return DamagedStateError(self.path, f"{expected}, got {brief(self.value)}")

    def refused_kind(self, found: object, expected: str) -> DamagedStateError:
        """Return the error for a saved position that belongs to another operator."""
        return DamagedStateError(self.path, f"is the position of {brief(found)}, but this plan has {expected!r} here")

    def entry(self, key: str) -> Part:
        """Return the value stored under a key of a dict.

        Raises:
            DamagedStateError: The value is not a dict, or the key is missing.
        """
        if not isinstance(self.value, Mapping):
            raise self.refused("must be a dict")
        if key not in self.value:
            raise DamagedStateError(self.path, f"must have the key {key!r}, got {_keys(self.value)}")
        return Part(self.value[key], f'{self.path}["{key}"]')

    def fields(self, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Part]:
        """Return the values of a dict that has all keys in ``names``, any keys in ``optional``, and no other keys.

        Args:
            optional: Keys that may be missing.

        Raises:
            DamagedStateError: The value is not a dict, lacks a required key, or has an unknown key.
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
        """Return the entries of the value, which must be a list.

        Raises:
            DamagedStateError: The value is not a list, or has fewer than ``least`` or more than ``most`` entries.
        """
        self.listed()
        if len(self.value) < least or (most is not None and len(self.value) > most):
            raise self.refused(f"must be a list of {_range(least, most)} entries")
        return [Part(value, f"{self.path}[{number}]") for number, value in enumerate(self.value)]

    def listed(self) -> list[Any]:
        """Return the value as a plain list. Unlike :meth:`items`, do not wrap each entry in a :class:`Part`."""
        if not isinstance(self.value, (list, tuple)):
            raise self.refused("must be a list")
        return list(self.value)

    def integer(self, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return the value, an integer from ``least`` to ``most``. Bools are refused.

        Raises:
            DamagedStateError: The value is not an integer, or is out of range.
        """
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.refused(f"must be an integer {_between(least, most)}")
        return self.value

    def epoch(self) -> int:
        """Return an epoch number."""
        return self.integer(0, MAX_EPOCH)

    def weight(self) -> float:
        """Return the value, a finite number of at least 0, as a float."""
        if type(self.value) not in (int, float) or not 0 <= self.value <= 1e308 or math.isnan(self.value):
            raise self.refused("must be a finite number of at least 0")
        return float(self.value)

    def flag(self) -> bool:
        """Return a bool. Other types are refused."""
        if type(self.value) is not bool:
            raise self.refused("must be true or false")
        return self.value

    def text(self, most: int = MAX_TEXT) -> str:
        """Return the value, a string of at most ``most`` characters."""
        if not isinstance(self.value, str) or len(self.value) > most:
            raise self.refused(f"must be a string of at most {most} characters")
        return self.value


def seed_in(part: Part) -> int:
    """Return the random seed in ``part``: a positive or negative integer of up to 4096 bits."""
    if type(part.value) is not int or part.value.bit_length() > MAX_SEED_BITS:
        raise part.refused("must be an integer")
    return part.value


@contextmanager
def naming(name: str) -> Iterator[None]:
    """In errors raised in the block, use ``name`` instead of the name "state". An example of ``name`` is
    ``state[2]``."""
    try:
        yield
    except StateMismatchError as error:
        if name == STATE:
            raise
        if isinstance(error, DamagedStateError):
            raise DamagedStateError(f"{name}{error.path.removeprefix(STATE)}", error.problem) from None
        raise StateMismatchError([f"{name}: {one}" for one in error.differences], error.cure) from None


def path_of(root: Any, value: Any, path: str) -> str | None:
    """Return the path of the object ``value`` inside ``root``, or None if ``root`` does not contain ``value``.

    The function compares objects by identity.
    """
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
    """Describe a value of any size in a few characters, for an error message."""
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
