"""The structures of the Arrow C data interface in ctypes, as in the Arrow specification."""

from __future__ import annotations

import ctypes
from typing import Any, Final

NULLABLE: Final = 2
"""Flag of a schema whose field can have missing rows."""

SCHEMA_NAME: Final = b"arrow_schema"
ARRAY_NAME: Final = b"arrow_array"
STREAM_NAME: Final = b"arrow_array_stream"


class CSchema(ctypes.Structure):
    """``struct ArrowSchema``."""


class CArray(ctypes.Structure):
    """``struct ArrowArray``."""


class CStream(ctypes.Structure):
    """``struct ArrowArrayStream``."""


CSchema._fields_ = [
    ("format", ctypes.c_void_p),
    ("name", ctypes.c_void_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
CArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.c_void_p),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
CStream._fields_ = [
    ("get_schema", ctypes.c_void_p),
    ("get_next", ctypes.c_void_p),
    ("get_last_error", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

RELEASE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
GET: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
GET_ERROR: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
DESTRUCTOR: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

_POINTER_OF: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
# A destructor must not take a reference to its capsule, so the capsule is an address here.
_POINTER_OF_DYING: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_NEW_CAPSULE: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_INCREMENT: Final = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


def address_of_function(function: Any) -> int:
    """Return the address of a ctypes callback. The callback is never freed, because other libraries may call it."""
    _INCREMENT(function)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def pointer_of(capsule: object, name: bytes) -> int:
    """Return the address in a capsule.

    Raises:
        ValueError: The object is not a capsule of this name.
    """
    found: int = _POINTER_OF(capsule, name)
    return found


def pointer_of_dying(capsule: int, name: bytes) -> int:
    """Return the address in a capsule that is being destroyed, for its destructor."""
    found: int = _POINTER_OF_DYING(capsule, name)
    return found


def new_capsule(struct: ctypes.Structure, name: bytes, destructor: int) -> object:
    """Return a capsule around ``struct``, whose memory the destructor must free."""
    return _NEW_CAPSULE(ctypes.addressof(struct), name, destructor)


for _name in (SCHEMA_NAME, ARRAY_NAME, STREAM_NAME):
    _INCREMENT(_name)  # capsules refer to their names while the interpreter ends
