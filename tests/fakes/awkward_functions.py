"""Functions that fail, or succeed, in ways that do not travel between processes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any


class TwoArguments(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class KeywordOnly(ValueError):
    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)


class UnpicklableAttribute(LookupError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class OwnBase(BaseException):
    pass


class BrokenText(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError("in __str__")


class BrokenReduce(Exception):
    def __reduce__(self) -> Any:
        raise SystemExit("in __reduce__")


class ReducesToSomethingElse(Exception):
    def __reduce__(self) -> Any:
        return (list, ())


class ReducesToAnExit(Exception):
    def __reduce__(self) -> Any:
        return (_exit, ())


class NoSubclasses(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("is not for subclassing")


class Immutable(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} cannot be set")


@dataclass(frozen=True)
class FrozenDataclass(Exception):
    code: int


class RefusesNotes(Exception):
    def add_note(self, note: str) -> None:
        raise TypeError("takes no notes")


def _with_odd_notes() -> ValueError:
    error = ValueError("with notes that are none")
    error.__notes__ = [5]  # type: ignore[list-item]
    return error


class DoesNotUnpickle:
    def __reduce__(self) -> Any:
        return (_exit, ())


class RefusesToUnpickle:
    def __reduce__(self) -> Any:
        return (_refuse, ())


class DoesNotPickle:
    def __reduce__(self) -> Any:
        raise RuntimeError("refuses to be pickled")


def _exit() -> None:
    raise SystemExit("while it was unpickled")


def _refuse() -> None:
    raise TypeError("refuses to be unpickled")


RAISED: dict[str, Any] = {
    "TwoArguments": lambda: TwoArguments(1, 2),
    "KeywordOnly": lambda: KeywordOnly(reason="because"),
    "UnpicklableAttribute": lambda: UnpicklableAttribute("has a lock"),
    "OwnBase": lambda: OwnBase("own"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("pressed"),
    "GeneratorExit": lambda: GeneratorExit("left"),
    "BrokenText": BrokenText,
    "BrokenReduce": lambda: BrokenReduce("reduce"),
    "ReducesToSomethingElse": lambda: ReducesToSomethingElse("a list"),
    "ReducesToAnExit": lambda: ReducesToAnExit("an exit"),
    "NoSubclasses": lambda: NoSubclasses("alone"),
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("one"), TypeError("two")]),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "Immutable": lambda: Immutable("for ever"),
    "FrozenDataclass": lambda: FrozenDataclass(5),
    "RefusesNotes": lambda: RefusesNotes("none"),
    "ValueError": _with_odd_notes,
    "StopIteration": lambda: StopIteration("stopped"),
}
RETURNED: dict[str, Any] = {
    "DoesNotUnpickle": DoesNotUnpickle,
    "RefusesToUnpickle": RefusesToUnpickle,
    "DoesNotPickle": DoesNotPickle,
    "lock": threading.Lock,
}


def awkward_on_seven(kind: str, number: int) -> Any:
    """Return the number, but fail for 7, or return something that does not travel."""
    if number != 7:
        return number
    if kind in RETURNED:
        return RETURNED[kind]()
    raise RAISED[kind]()


async def awaited_awkward_on_seven(kind: str, number: int) -> Any:
    """The same, awaited."""
    return awkward_on_seven(kind, number)
