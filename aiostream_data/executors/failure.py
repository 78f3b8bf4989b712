"""Transfer exceptions from worker processes as text, and as exception objects if they can be pickled."""

from __future__ import annotations

import pickle
import traceback
from functools import lru_cache
from typing import Any

from aiostream_data.errors import RecordError
from aiostream_data.executors.pickling import dumps

WORKER_TRACEBACK = "worker traceback:\n"
"""First line of the exception note that contains a worker's traceback."""


_PYTHONS_OWN = ("__init__", "__str__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "add_note")
"""Methods that derived classes take from ``Exception``. A user's own version could prevent raising or printing.
"""


class Failure:
    """Description of an exception that was raised in a worker. Can always be pickled.

    Args:
        error: The exception.
        during: Step of the transfer that failed, such as "while the result was pickled"; "" if the function itself
            failed.
    """

    def __init__(self, error: BaseException, during: str = "") -> None:
        self.message = f"{_text(error)} ({during})" if during else _text(error)
        self.in_transit = bool(during)
        self.notes = list(error.__notes__) if hasattr(error, "__notes__") and _notes_are_notes(error) else []
        if isinstance(error, RecordError) and error.worker_traceback:  # from a nested worker
            self.type_name, self.line, self.text = error.type_name, self.message, error.worker_traceback
            self.notes = [note for note in self.notes if not note.startswith(WORKER_TRACEBACK)]
        else:
            self.type_name, self.text = _name(type(error)), _traceback_text(error)
            self.line = f"{self.type_name}: {self.message}"
        self.pickled = _round_trip(error)

    def as_error(self) -> BaseException:
        """Return a RecordError to raise in the parent process.

        If the original exception can be unpickled, this exception becomes the cause of the RecordError.

        The RecordError gets all notes of the original exception, and the worker's traceback as its last note. The notes
        of the original exception are removed.
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
        if "\n  File " in self.text:  # a traceback without frames repeats the message
            error.add_note(WORKER_TRACEBACK + self.text)
        return error

    def _original(self) -> BaseException | None:
        if self.pickled is None:
            return None
        try:
            original = pickle.loads(self.pickled)
        except BaseException:  # noqa: BLE001 - unpickling failed; the text remains
            return None
        if not isinstance(original, BaseException):
            return None
        vars(original).pop("__notes__", None)
        return original


def workable(error: BaseException) -> BaseException:
    """Return ``error``.

    If Python cannot set attributes on ``error``, return a RecordError with the same type as ``error``.

    For example, if an exception class is a frozen dataclass, the standard library cannot set the traceback. Notes that
    are not strings are removed, because Python cannot print them.
    """
    try:
        error.__traceback__ = error.__traceback__
    except Exception:  # noqa: BLE001 - the class may raise anything
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
    """Return a class derived from both RecordError and ``kind``, or RecordError if Python cannot create this class."""

    def reduce(self: RecordError) -> tuple[Any, ...]:
        return (_rebuild, (kind, self.args, dict(self.__dict__)))

    if issubclass(kind, (RecordError, StopIteration, StopAsyncIteration)):  # StopIteration has a special meaning
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
    """Return the traceback of an error as Python prints it, without the notes, which are transferred separately."""
    try:
        shown = traceback.TracebackException.from_exception(error)
        shown.__notes__ = None
        return "".join(shown.format())
    except Exception as second:  # noqa: BLE001 - a broken exception must not hide the error
        return "".join(traceback.format_tb(error.__traceback__)) + f"<{type(second).__name__} while it was shown>\n"


def _round_trip(error: BaseException) -> bytes | None:
    try:
        pickled = dumps(error)
        pickle.loads(pickled)
    except BaseException:  # noqa: BLE001 - an exception that cannot be pickled is sent as text
        return None
    return pickled
