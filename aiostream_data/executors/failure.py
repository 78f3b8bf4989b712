"""How an exception travels out of a worker: always as text, and as itself if it survives the trip."""

from __future__ import annotations

import pickle
import traceback
from functools import lru_cache
from typing import Any

from aiostream_data.errors import RecordError
from aiostream_data.executors.pickling import dumps

WORKER_TRACEBACK = "worker traceback:\n"
"""How the note with the traceback of a worker begins."""


_PYTHONS_OWN = ("__init__", "__str__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "add_note")
"""What an exception class may define such that its objects cannot be raised and told about as any other."""


class Failure:
    """What a worker tells of an exception, whatever the exception is like. Pickles always.

    Args:
        error: What was raised.
        during: Where arguments or result did not survive their way between the processes, what was being done
            with them, such as "while the result was pickled".
    """

    def __init__(self, error: BaseException, during: str = "") -> None:
        self.message = f"{_text(error)} ({during})" if during else _text(error)
        self.in_transit = bool(during)
        self.notes = list(error.__notes__) if hasattr(error, "__notes__") and _notes_are_notes(error) else []
        if isinstance(error, RecordError) and error.worker_traceback:  # of a worker that this worker has
            self.type_name, self.line, self.text = error.type_name, self.message, error.worker_traceback
            self.notes = [note for note in self.notes if not note.startswith(WORKER_TRACEBACK)]
        else:
            self.type_name, self.text = _name(type(error)), _traceback_text(error)
            self.line = f"{self.type_name}: {self.message}"
        self.pickled = _round_trip(error)

    def as_error(self) -> BaseException:
        """Return the RecordError to raise in the parent, caused by the original where there is one.

        All notes are the RecordError's, the last one with the worker's traceback; the original has none.
        """
        original = self._original()
        kind = RecordError if not isinstance(original, Exception) else _record_error_like(type(original))  # type: ignore[arg-type]
        error = kind(self.line)
        error.type_name = self.type_name
        error.worker_traceback = self.text
        error.in_transit = self.in_transit
        error.__cause__ = original
        for note in self.notes:
            error.add_note(note)
        if "\n  File " in self.text:  # without frames it says what the error says
            error.add_note(WORKER_TRACEBACK + self.text)
        return error

    def _original(self) -> BaseException | None:
        if self.pickled is None:
            return None
        try:
            original = pickle.loads(self.pickled)
        except BaseException:  # noqa: BLE001 - what could be rebuilt in the worker cannot be here: the text says it
            return None
        if not isinstance(original, BaseException):
            return None
        vars(original).pop("__notes__", None)
        return original


def workable(error: BaseException) -> BaseException:
    """Return an error, or a RecordError of its type where it lets nobody set what Python sets on errors.

    A frozen dataclass is such an error: to hand it on, the standard library sets its traceback, and fails at that.
    Notes that are none, on which Python fails, too, are dropped.
    """
    try:
        error.__traceback__ = error.__traceback__
    except Exception:  # noqa: BLE001 - whatever it raises instead
        return _stand_in(error)
    if type(error).add_note is not BaseException.add_note:
        return _stand_in(error)
    if not _notes_are_notes(error):
        error.__notes__ = []
    return error


def _stand_in(error: BaseException) -> RecordError:
    failure = Failure(error)
    kind = _record_error_like(type(error)) if isinstance(error, Exception) else RecordError  # type: ignore[arg-type]
    stand_in = kind(failure.line)
    stand_in.type_name, stand_in.worker_traceback = failure.type_name, failure.text
    stand_in.__cause__ = error
    for note in failure.notes:
        stand_in.add_note(note)
    return stand_in


def _notes_are_notes(error: BaseException) -> bool:
    notes = getattr(error, "__notes__", [])
    return isinstance(notes, list) and all(isinstance(note, str) for note in notes)


def _rebuild(kind: type[Exception], args: tuple[Any, ...], fields: dict[str, Any]) -> RecordError:
    mixed = _record_error_like(kind)  # type: ignore[arg-type]  # mypy takes a class for one of its objects
    error = mixed.__new__(mixed)
    error.args = args
    error.__dict__.update(fields)
    return error


@lru_cache(maxsize=256)
def _record_error_like(kind: type[Exception]) -> type[RecordError]:
    """Return a RecordError class that is also of the original's type, where Python allows that."""

    def reduce(self: RecordError) -> tuple[Any, ...]:
        return (_rebuild, (kind, self.args, dict(self.__dict__)))

    if issubclass(kind, (RecordError, StopIteration, StopAsyncIteration)):  # the latter mean something to any loop
        return RecordError
    body: dict[str, Any] = {name: getattr(Exception, name) for name in _PYTHONS_OWN}
    body["__reduce__"] = reduce
    try:
        mixed = type(f"RecordError[{kind.__name__}]", (RecordError, kind), body)
        mixed("probe")
    except Exception:  # noqa: BLE001 - any refusal (layout, __new__, metaclass) means the plain class
        return RecordError
    return mixed


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        return f"<{type(second).__name__} in __str__>"


def _name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _traceback_text(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the notes of the error, which travel by themselves."""
    try:
        shown = traceback.TracebackException.from_exception(error)
        shown.__notes__ = None
        return "".join(shown.format())
    except Exception as second:  # noqa: BLE001 - nor may whatever else is broken in it
        return "".join(traceback.format_tb(error.__traceback__)) + f"<{type(second).__name__} while it was shown>\n"


def _round_trip(error: BaseException) -> bytes | None:
    try:
        pickled = dumps(error)
        pickle.loads(pickled)
    except BaseException:  # noqa: BLE001 - whatever goes wrong, the text is sent instead
        return None
    return pickled
