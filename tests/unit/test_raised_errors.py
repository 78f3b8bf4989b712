"""What the package raises on purpose is one of its own errors, which pickle and can be imported."""

from __future__ import annotations

import ast
import builtins
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data
from aiostream_data import errors
from aiostream_data.errors import AiostreamError
from aiostream_data.plan.changes import Difference
from aiostream_data.rows.ragged import RaggedArray

PACKAGE = Path(aiostream_data.__file__).parent
BUILT_IN = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}

PROTOCOLS = frozenset({"StopIteration", "StopAsyncIteration", "NotImplementedError", "KeyboardInterrupt"})
"""What Python's own protocols demand, and what passes through."""

ALLOWED = {
    ("__init__.py", "AttributeError"): "what a module's __getattr__ must raise",
    ("codecs/npy_header.py", "ValueError"): "translated by the readers of NumPy files, and by decode_npy",
    ("formats/hdf5_file.py", "OSError"): "a file object for h5py; translated by the HDF5 reader around it",
    ("formats/known_ranges.py", "OSError"): "a file object for pyarrow; translated by the Parquet reader around it",
    ("storage/cache/tree.py", "FileNotFoundError"): "the cache reads from the store instead",
    ("storage/fsspec_store.py", "IsADirectoryError"): "translated into ObjectNotFoundError by the block around it",
    ("storage/local_listing.py", "IsADirectoryError"): "translated into ObjectNotFoundError by the block around it",
    ("storage/wire/pool.py", "ConnectionAbortedError"): "translated into StoreUnreachableError by the block around it",
}

CONTRACTS = (
    *("_native", "rows/row_ids.py", "transforms"),
    *("_engine/flow/channel.py", "_engine/resume/group_history.py", "_engine/resume/shuffle_history.py"),
    *(
        "_engine/sources/memory_rows.py",
        "_engine/sources/shard_chunks.py",
        "_engine/resume/lineage_reader.py",
        "_engine/resume/user_values.py",
        "formats/stream.py",
    ),
)
"""Called by the package alone: kernels and orders check what they are given. What a damaged state makes them raise
becomes a StateMismatchError."""

TEST_TOOLS = ("testing/adversarial", "testing/fault_", "testing/object_api")
"""Servers and devices for tests, which answer requests with such errors; and assertions."""

SIGNALS = frozenset(
    {
        *(
            "BadValue",
            "BrokenAnswer",
            "CarriedError",
            "DamagedMessageError",
            "DamagedPieceError",
            "DamagedVectorError",
            "DeadlinePassed",
            "DecompressorTaken",
        ),
        *("EndOfStream", "ForeignEntryError", "HeaderError", "InputFailed", "NoNumpyFormError", "NotAListing"),
        *("NotStorableError", "PartlyDone"),
        *("LinkEnded", "MalformedAnswer", "PeerGone", "ReceiverClosed", "Refused", "StreamAborted", "Unusual"),
        *("OversizedBody", "_BadFeature", "_BadTensor", "_ChunkError", "_JsonMisfit", "_Misfit", "_StaleConnection"),
        *("UnreadablePart", "_Stop"),
    }
)
"""Classes that one part of the package raises for another, which catches them all."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())


def raised_built_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(kind, ast.Name) and kind.id in BUILT_IN - PROTOCOLS:
                yield node.lineno, kind.id


def is_allowed(module: str, kind: str) -> bool:
    if (module, kind) in ALLOWED or module.startswith((*CONTRACTS, *TEST_TOOLS)):
        return True
    return module.startswith("testing/") and kind == "AssertionError"


def test_no_built_in_exception_is_raised_on_purpose() -> None:
    found = [(module, *line) for module, tree in modules() for line in raised_built_in(tree)]
    assert [f"{module}:{line} raises {kind}" for module, line, kind in found if not is_allowed(module, kind)] == []


def test_every_exception_that_is_allowed_is_still_raised() -> None:
    found = {(module, kind) for module, tree in modules() for _, kind in raised_built_in(tree)}
    assert sorted(set(ALLOWED) - found) == []
    assert [part for part in CONTRACTS if not any(module.startswith(part) for module, _ in found)] == []


def test_every_class_of_exceptions_outside_of_errors_is_ours_or_a_signal() -> None:
    odd = []
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and module != "errors.py":
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                if bases & BUILT_IN and "AiostreamError" not in bases and node.name not in SIGNALS:
                    odd.append(f"{module}: {node.name}")
    assert odd == []


def arguments_of(kind: type[AiostreamError]) -> tuple[Any, ...]:
    """Return an argument for each parameter of a class of errors, by its annotation."""
    if issubclass(kind, ExceptionGroup):
        return ("message", [OSError("inner")])
    if issubclass(kind, errors.StateMismatchError) and kind.__init__ is errors.StateMismatchError.__init__:
        return ([Difference("seed", "seed", "the seed differs")], "a cure")
    if kind.__init__ in (AiostreamError.__init__, OSError.__init__, ValueError.__init__, ImportError.__init__):
        return ("message",)
    made = {"int": 7, "float": 1.5, "int | None": 28}
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    by_position = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return tuple(made.get(one.annotation, "text") for one in by_position) or ("message",)


KINDS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, AiostreamError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_pickles_with_its_fields_and_notes(kind: type[AiostreamError]) -> None:
    error = kind(*arguments_of(kind))
    error.add_note("stage: map")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.__notes__) == (kind, str(error), ["stage: map"])
    assert vars(back).keys() == vars(error).keys()
    assert getattr(back, "errno", None) == getattr(error, "errno", None)
    assert repr(back) == repr(error)
    again = pickle.loads(pickle.dumps(back))
    assert str(again) == str(error)


def raised_by(call: Callable[[], object], kind: type[Exception], match: str) -> Exception:
    with pytest.raises(kind, match=match) as caught:
        call()
    return caught.value


def test_errors_keep_the_built_in_class_that_programs_catch() -> None:
    unknown = aiostream_data.Dataset.from_generator(lambda: iter([1]))
    ragged = RaggedArray(np.array([1, 2, 3]), np.array([0, 1, 3]))
    with aiostream_data.Dataset.range(3).open() as loader:
        found = [
            raised_by(lambda: len(unknown), TypeError, "unknown length"),
            raised_by(lambda: ragged[7], IndexError, "row 7 is out of range"),
            raised_by(lambda: ragged[::0], ValueError, "must not be 0"),
            raised_by(lambda: np.asarray(ragged, dtype=np.int64), TypeError, "to_padded"),
            raised_by(lambda: aiostream_data.combine_hashes(["x"]), ValueError, "32 hexadecimal digits"),
            raised_by(lambda: pickle.dumps(loader), TypeError, "cannot be pickled"),
            raised_by(loader.origins, ValueError, "has no element"),
        ]
    assert [error for error in found if not isinstance(error, AiostreamError)] == []
    assert list(ragged[1]) == [2, 3]


def test_a_group_of_errors_that_is_split_stays_one_of_ours() -> None:
    group = aiostream_data.CloseError("closing failed", [OSError("a"), ValueError("b")])
    matching, rest = group.split(OSError)
    assert isinstance(matching, aiostream_data.CloseError)
    assert isinstance(rest, aiostream_data.CloseError)
