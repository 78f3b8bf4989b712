"""Every exception of the package, grouped by who must act on it.

All of them derive from :class:`AiostreamError`; each also derives from the built-in exception that
Python code would expect (``ValueError``, ``FileNotFoundError``, ``TimeoutError`` ...), so that both
habits work. They pickle, with their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from aiostream_data.safe_url import safe_quotes, safe_url

_SHOWN_DIFFERENCES = 20


class AiostreamError(Exception):
    """Base of every error raised by aiostream_data."""

    def __reduce__(self) -> tuple[Any, ...]:
        fields = dict(self.__dict__)
        if isinstance(self, OSError) and self.errno is not None:  # a slot of OSError
            fields["errno"] = self.errno
        return (_rebuild, (type(self), self.args, fields))


def _rebuild(kind: type[AiostreamError], args: tuple[Any, ...], fields: dict[str, Any]) -> AiostreamError:
    # MemoryError brings a __new__ that Python lets only its own direct subclasses use, and OSError's must be used.
    base = OSError if issubclass(kind, OSError) else Exception if issubclass(kind, MemoryError) else kind
    error = base.__new__(kind)
    error.args = args
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def _rebuild_group(kind: type[CloseError], message: str, errors: list[Exception], fields: dict[str, Any]) -> CloseError:
    group = kind(message, errors)
    group.__dict__.update(fields)
    return group


# -- raised to the author of the chain -------------------------------------------------------------------


class PlanError(AiostreamError, ValueError):
    """An argument or a combination of operators makes no sense; raised where the chain is written."""

    def __init__(self, message: str = "") -> None:
        super().__init__(safe_quotes(message))


class ArgumentTypeError(PlanError, TypeError):
    """An argument is of a type that cannot serve."""


class UnknownNameError(PlanError, AttributeError):
    """A data set, or the package, has no such name; the message tells the nearest one, or what to use instead."""


class UnknownLengthError(AiostreamError, TypeError):
    """``len()`` of a data set that never ends, or whose length only reading would tell."""


class NotPicklableError(AiostreamError, TypeError):
    """An object was to be pickled or copied that belongs to its process: a running loader, or credentials."""


class RowIndexError(AiostreamError, IndexError):
    """A :class:`RaggedArray` has no row of this number."""


class StageBuildError(PlanError):
    """A function or source cannot serve the stage it was given to."""


class StateMismatchError(AiostreamError, ValueError):
    """A state belongs to another plan, seed or shard list than the one it is opened with.

    Attributes:
        differences: What differs: a sentence each, or an object that prints as one.
        cure: What can be done about it; empty where nothing is known.

    Args:
        head: The line above the differences, where the pipeline is not what differs.
    """

    _head: ClassVar[str] = "the state was saved from another pipeline than the one it is opened with:"

    def __init__(self, differences: Iterable[object], cure: str = "", *, head: str = "") -> None:
        self.differences = tuple(differences)
        self.cure = cure
        shown = [f"  {difference}" for difference in self.differences[:_SHOWN_DIFFERENCES]]
        if len(self.differences) > len(shown):
            shown.append(f"  and {len(self.differences) - len(shown)} more")
        super().__init__("\n".join([head or self._head, *shown, *([cure] if cure else [])]))


class ShardGoneError(StateMismatchError):
    """A state needs rows of a shard that is no longer in the list."""


class DamagedStateError(StateMismatchError):
    """A value in a state is missing, of another type, or out of its range.

    Attributes:
        path: Where it is in the state: ``state["position"]["pushed"]``.
        problem: What was expected there, and what was found.
    """

    _head = "cannot resume: the state is damaged, or does not fit this pipeline:"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            [f"{path} {problem}"],
            "Open the data set without this state, or with one that state_dict() of this pipeline returned.",
        )
        self.path = path
        self.problem = problem


class RankError(AiostreamError, ValueError):
    """Rows or files cannot be shared by these ranks, or it cannot be told which rank this process is."""


# -- raised about the data ---------------------------------------------------------------------


class DataError(AiostreamError):
    """The bytes were read, and are not what they should be."""


class CorruptRecordError(DataError):
    """Bytes are damaged: a checksum, length or compressed stream does not hold.

    Attributes:
        url: The object.
        offset: Byte offset of the damaged record, in the decompressed stream.
    """

    def __init__(self, url: str, offset: int, reason: str) -> None:
        super().__init__(f"{safe_url(url)} at byte {offset}: {reason}")
        self.url = safe_url(url)
        self.offset = offset
        self.reason = reason


class IndexFileError(DataError, ValueError):
    """A file that was given as the index of a data set is none, was cut, or names what it may not name.

    Attributes:
        url: The index.
        line: Number of the line, from 1 on.
    """

    def __init__(self, url: str, line: int, reason: str) -> None:
        super().__init__(f"{safe_url(url)} line {line}: {reason}; write it anew with aiostream_data.write_index()")
        self.url = safe_url(url)
        self.line = line
        self.reason = reason


class ExampleParseError(DataError, ValueError):
    """A serialized ``tf.train.Example`` does not fit the feature specification.

    Attributes:
        url: The object, or "" when unknown.
        record: Index of the record in the object.
        feature: Name of the feature, or "" when the message itself is malformed.
    """

    def __init__(self, url: str, record: int, feature: str, expected: str, found: str) -> None:
        where = f"{safe_url(url) or '<memory>'} record {record}"
        what = f"feature {feature!r}: " if feature else ""
        super().__init__(f"{where}: {what}expected {expected}, found {found}")
        self.url = safe_url(url)
        self.record = record
        self.feature = feature
        self.expected = expected
        self.found = found


class ExampleEncodeError(DataError, ValueError):
    """A value cannot be written as a feature of a ``tf.train.Example``.

    Attributes:
        feature: Name of the feature.
    """

    def __init__(self, feature: str, reason: str) -> None:
        super().__init__(f"feature {feature!r}: {reason}")
        self.feature = feature
        self.reason = reason


class BatchShapeError(DataError, ValueError):
    """Elements of different shapes, dtypes or structures were to be stacked into one batch."""


class BatchCostError(DataError, ValueError):
    """An element alone costs more than a batch may, and nothing says what becomes of it.

    Attributes:
        record: Which one.
        cost: What it costs.
        max_cost: What a batch may cost.
    """

    def __init__(self, record: str, cost: int, max_cost: int) -> None:
        super().__init__(
            f"{record} costs {cost}, and a batch may cost {max_cost}: make the record smaller before, raise max_cost, "
            "or say what becomes of it with on_too_large="
        )
        self.record = record
        self.cost = cost
        self.max_cost = max_cost


class SignatureError(DataError, TypeError):
    """An item of a generator does not fit the signature it was declared with."""


class ChoiceError(DataError, IndexError):
    """A data set of choices names a data set that is not there."""


class CardinalityError(DataError):
    """The rows of an epoch do not add up; rows were lost or invented."""


class DeviceLeafError(DataError, TypeError):
    """A leaf of a batch has a dtype that device memory cannot hold (bytes, str, objects, dates ...).

    Attributes:
        leaf: Path of the leaf in the batch.
    """

    def __init__(self, leaf: str, found: str, device: str) -> None:
        super().__init__(f"leaf {leaf!r} is {found}, which cannot go to {device}: drop it or make it numbers first")
        self.leaf = leaf
        self.found = found
        self.device = device


class DeviceTargetError(DataError, ValueError):
    """A batch does not fit into the arrays that were given to ``into()``.

    Attributes:
        leaf: Path of the leaf; empty where it is about all of them.
        reason: What does not fit.
    """

    def __init__(self, leaf: str, reason: str) -> None:
        where = f"target {leaf!r}" if leaf else "the targets"
        super().__init__(f"{where} of into() cannot take the batch: {reason}")
        self.leaf = leaf
        self.reason = reason


class SlotTooSmallError(DataError, ValueError):
    """A batch is larger than the declared size of a device slot; nothing of it was copied."""


class ImageCastError(DataError, ValueError):
    """A batch has no images for :class:`ImageCast`, or others than it was made for.

    Attributes:
        leaf: Path of the leaf; "" where none is of images.
    """

    def __init__(self, leaf: str, reason: str) -> None:
        super().__init__(f"ImageCast: leaf {leaf!r}: {reason}" if leaf else f"ImageCast: {reason}")
        self.leaf = leaf
        self.reason = reason


# -- raised about user functions ----------------------------------------------------------------


class RecordError(AiostreamError):
    """A user function failed in a worker process.

    Raised as a class that also derives from the original exception's type where that is possible,
    so ``except ValueError`` still works.

    Attributes:
        type_name: Qualified name of the original exception's type.
        worker_traceback: The traceback text of the worker.
        in_transit: It was not the function that failed: an element or a result does not pickle, or unpickle.
    """

    type_name: str = ""
    worker_traceback: str = ""
    in_transit: bool = False


class WorkerDiedError(AiostreamError):
    """A worker process ended while it worked on a record."""


class RecordTimeoutError(AiostreamError, TimeoutError):
    """A call of a user function took longer than the time-out of its stage."""


class StageTimeoutError(AiostreamError, TimeoutError):
    """No element came for longer than ``open(stage_timeout=)`` allows.

    Attributes:
        stage: The stage that is stuck; "" where none has started yet.
        waited_s: How long an element was waited for.
    """

    def __init__(self, stage: str, waited_s: float, limit_s: float, sentence: str) -> None:
        super().__init__(f"no element for {waited_s:.4g} s (stage_timeout={limit_s:.4g}): {sentence}")
        self.stage = stage
        self.waited_s = waited_s


class ErrorBudgetError(AiostreamError):
    """More records failed than the stage's error policy lets be skipped or replaced.

    Raised from the error of the record that was one too many.

    Attributes:
        stage: The stage's label.
        failures: Records that failed, this one included. A file that a source lost, or the rest of one, counts as one.
        rows: Records that the stage had taken up to this one.
    """

    def __init__(self, stage: str, failures: int, rows: int, what: str, budget: str, last: str) -> None:
        super().__init__(
            f"{failures} of {rows} {what} failed in {stage}, and on_error allows {budget}; the last one with {last}"
        )
        self.stage = stage
        self.failures = failures
        self.rows = rows


class DeadLetterError(AiostreamError, ValueError):
    """A dead-letter log cannot be read, written, or run again with this data set."""


# -- raised about stores and credentials --------------------------------------------------


class StorageError(AiostreamError, OSError):
    """A store did not deliver.

    Attributes:
        url: The object or pattern asked for.
        received: Bytes from the beginning of the range that did arrive.
        version: Of the object that they are of; "" where it was not told.
        waited_s: Seconds before the request was sent, since the user's caps allowed for no more.
    """

    received = 0
    waited_s = 0.0
    version = ""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{safe_url(url)}: {reason}")
        self.url = safe_url(url)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class LibraryError(AiostreamError):
    """Stands in a chain of causes for an exception of a library whose text shows a secret. Never raised itself."""


class NoMatchError(StorageError, FileNotFoundError):
    """No object matches the pattern."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object, or its bucket, does not exist.

    Attributes:
        is_bucket: The bucket does not exist.
    """

    is_bucket = False


class AccessDeniedError(StorageError, PermissionError):
    """The store refused these credentials."""


class CredentialsError(StorageError, PermissionError):
    """No credentials were found, or they have expired.

    Attributes:
        is_expired: The store says that they were good once.
    """

    is_expired = False


class StoreUnreachableError(StorageError, ConnectionError):
    """No connection to the endpoint could be made or kept.

    Attributes:
        is_final: Trying again cannot help: who the server is could not be verified.
    """

    is_final = False


class StoreTimeoutError(StorageError, TimeoutError):
    """The store did not answer within the time-outs."""


class StoreBusyError(StorageError):
    """The store answered that it cannot serve the request now (429, 500, 503 and the like).

    Attributes:
        is_throttled: It says that it is asked too much.
        retry_after_s: How long it asks to be left alone; None where it does not say.
    """

    is_throttled = False
    retry_after_s: float | None = None


class WrongAnswerError(StorageError):
    """The store's answer contradicts itself, or what was asked for; it did so again and again."""


class ChecksumError(WrongAnswerError):
    """The bytes of an object are not those of which its store has the checksum; they were not on any attempt.

    Attributes:
        algorithm: Such as "crc32c".
        expected, found: What the store says, and what the bytes sum up to, in hexadecimal digits.
    """

    def __init__(self, url: str, algorithm: str, expected: str, found: str) -> None:
        super().__init__(
            url,
            f"the store says that the object's {algorithm} is {expected}, and the bytes that came have {found}: "
            "they were changed on the way or where they are kept",
        )
        self.algorithm = algorithm
        self.expected = expected
        self.found = found


class RedirectRefusedError(StorageError):
    """The server redirects where a client must not follow: from HTTPS to HTTP, or to a URL that is not HTTP."""


class ShortReadError(StorageError):
    """The store delivered another number of bytes than was asked for."""


class ObjectChangedError(StorageError):
    """The object was written to or replaced after it was listed: before it was opened, or while it was being read."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            url,
            f"{reason}; keep files unchanged while a run reads them. If no row of this one was delivered, the last "
            'state resumes with allow=["shards"]',
        )


# -- raised about the installation and the machine -----------------------------------------------------


class WriteError(AiostreamError, OSError):
    """A file could not be written; nothing was stored under its name. ``errno`` is the system's, where it gave one.

    Attributes:
        url: The file.
    """

    def __init__(self, url: str, reason: str, number: int | None = None) -> None:
        super().__init__(f"{safe_url(url)}: {reason}")
        self.url = safe_url(url)
        self.errno = number

    def __str__(self) -> str:
        return str(self.args[0])


class WriterClosedError(AiostreamError, ValueError):
    """A writer was used after it was closed or discarded.

    Attributes:
        url: The file.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{safe_url(url)}: {reason}")
        self.url = safe_url(url)

    def __str__(self) -> str:
        return str(self.args[0])


class WriterFailedError(WriterClosedError, OSError):
    """A writer was used after one of its calls failed; the file was discarded. Raised from the first error."""


class MissingExtraError(AiostreamError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


class DeviceUnavailableError(AiostreamError, RuntimeError):
    """The asked-for device cannot be used on this machine.

    Attributes:
        absent: There is none: no driver, or no GPU. Otherwise something is in the way, as the message says.
        status: Number of the CUDA status that told so; None where there is none.
    """

    def __init__(self, message: str, *, absent: bool = False, status: int | None = None) -> None:
        super().__init__(message)
        self.absent = absent
        self.status = status


class DeviceMemoryError(AiostreamError, MemoryError):
    """The device slots, or a batch taken out of one, do not fit into device memory.

    Attributes:
        need: Bytes that were asked for in one piece; None where nobody can tell.
        free: Bytes that the device had free at that moment, of all programs together; None where it does not say.
        depth: Number of device slots that were to be had; None where the memory was not for slots.
    """

    def __init__(
        self, message: str, *, need: int | None = None, free: int | None = None, depth: int | None = None
    ) -> None:
        super().__init__(message)
        self.need = need
        self.free = free
        self.depth = depth


class PinningError(DeviceMemoryError):
    """Host memory of ``need`` bytes could not be page-locked, so that the device could copy from it."""


class DeviceError(AiostreamError, RuntimeError):
    """The device reported a failure; what is on it can no longer be trusted.

    Attributes:
        status: Number of the CUDA status; None where there is none.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GraphCaptureError(AiostreamError, RuntimeError):
    """A batch was to be handed over on a stream that is being captured into a CUDA graph; it is still there."""


class BatchReleasedError(AiostreamError, RuntimeError):
    """A device batch was used after it was taken out or given back."""


class LeasesHeldError(AiostreamError, RuntimeError):
    """The consumer has the batches of all device slots and asks for another one, which can never come.

    Attributes:
        depth: How many slots there are.
        waited_s: For how long.
    """

    def __init__(self, depth: int, waited_s: float) -> None:
        super().__init__(
            f"the consumer has held all {depth} device slots for {waited_s:.3g} s while it waits for another batch, "
            "which needs one: give batches back (a with block, release() or into()), or raise depth"
        )
        self.depth = depth
        self.waited_s = waited_s


class MemoryBudgetError(AiostreamError, MemoryError):
    """A buffer of the plan cannot fit into the memory limit."""


class SpillError(AiostreamError, OSError):
    """Rows of a shuffle could not be kept in a file.

    Attributes:
        folder: Where the file is.
        nbytes: Bytes of the file at that moment.
    """

    def __init__(self, folder: str, nbytes: int, reason: str, cure: str) -> None:
        super().__init__(f"{folder}, where a shuffle spills its rows ({nbytes} bytes so far): {reason}; {cure}")
        self.folder = folder
        self.nbytes = nbytes

    def __str__(self) -> str:
        return str(self.args[0])


class ShardCacheError(AiostreamError, OSError):
    """The folder of a shard cache cannot be used.

    Attributes:
        folder: Which one.
    """

    def __init__(self, folder: str, reason: str, cure: str) -> None:
        super().__init__(f"shard cache {folder}: {reason}; {cure}")
        self.folder = folder

    def __str__(self) -> str:
        return str(self.args[0])


class SharedMemoryError(AiostreamError, OSError):
    """Memory that processes share could not be had. ``errno`` is the system's, where it gave one."""

    def __init__(self, reason: str, number: int | None = None) -> None:
        super().__init__(reason)
        self.errno = number

    def __str__(self) -> str:
        return str(self.args[0])


class CloseError(AiostreamError, ExceptionGroup[Exception]):
    """Stores or devices failed to close; all others were closed. A group of what they raised."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_group, (type(self), self.message, list(self.exceptions), dict(self.__dict__)))

    def derive(self, excs: Sequence[Exception]) -> CloseError:  # type: ignore[override]
        return CloseError(self.message, excs)


class ForkedPipelineError(AiostreamError, RuntimeError):
    """An open loader was used in a forked child; open the data set anew in the child."""


class UnknownElementError(AiostreamError, ValueError):
    """The rows of an element cannot be named, as it is not the element received last."""


class LoaderClosedError(AiostreamError, RuntimeError):
    """The loader was closed and gives no more elements."""
