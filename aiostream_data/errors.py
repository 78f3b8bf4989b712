"""Exceptions of the package, grouped by cause.

Every exception derives from :class:`AiostreamError`. Most exceptions also derive from the built-in exception with the
same meaning, such as ``ValueError`` or ``TimeoutError``. Existing ``except`` clauses therefore work. All exceptions of
this package can be pickled, including their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from aiostream_data.safe_url import safe_quotes, safe_url

_SHOWN_DIFFERENCES = 20
_SHOWN_COLUMNS = 50


class AiostreamError(Exception):
    """Base class of every error raised by aiostream_data."""

    def __reduce__(self) -> tuple[Any, ...]:
        fields = dict(self.__dict__)
        if isinstance(self, OSError) and self.errno is not None:  # a slot of OSError
            fields["errno"] = self.errno
        return (_rebuild, (type(self), self.args, fields))


def _rebuild(kind: type[AiostreamError], args: tuple[Any, ...], fields: dict[str, Any]) -> AiostreamError:
    # Python refuses MemoryError.__new__ for these subclasses. Subclasses of OSError require OSError.__new__.
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


# -- errors in the pipeline definition -------------------------------------------------------------------


class PlanError(AiostreamError, ValueError):
    """An argument or a combination of operators is invalid.

    ``PlanError`` is usually raised while the pipeline is defined.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(safe_quotes(message))


class ArgumentTypeError(PlanError, TypeError):
    """An argument of a function has an unsupported type."""


class UnknownNameError(PlanError, AttributeError):
    """The package or a data set has no attribute of this name. The error message suggests a replacement."""


class ColumnError(PlanError):
    """A column operator does not fit the columns of the elements.

    The error is raised when the operator is called if the structure of the elements is known, else at the first element
    that does not fit.

    Attributes:
        operator: Name of the operator, such as "select".
        column: Name of the column; None if the elements have no columns.
        present: Names of the columns that the elements have.
    """

    def __init__(self, operator: str, column: str | None, present: Iterable[Any], cause: str) -> None:
        self.operator = operator
        self.column = column
        self.present = tuple(present)
        if column is None:
            super().__init__(f"cannot run {operator}(): {cause}")
            return
        listed = ", ".join(map(repr, self.present[:_SHOWN_COLUMNS]))
        more = ", ..." if len(self.present) > _SHOWN_COLUMNS else ""
        super().__init__(f"cannot run {operator}() on column {column!r}: {cause} The columns are {listed}{more}.")


class UnknownLengthError(AiostreamError, TypeError):
    """``len()`` was called on a data set that is infinite or has an unknown length."""


class NotPicklableError(AiostreamError, TypeError):
    """An open loader or credentials cannot be pickled or copied, because they belong to one process."""


class RowIndexError(AiostreamError, IndexError):
    """A row index is out of range for a :class:`RaggedArray`."""


class StageBuildError(PlanError):
    """A stage cannot use the function, source or executor that was passed to it."""


class HiddenStateWarning(AiostreamError, UserWarning):
    """A user function has state that a resumed run cannot restore, such as a random generator in its closure.

    Operators issue this warning; a filter of Python's module ``warnings`` can raise or ignore it.
    """


class StateMismatchError(AiostreamError, ValueError):
    """The saved state belongs to a different plan, seed or shard list than the current pipeline.

    Attributes:
        differences: The differences found. Each item is a sentence, or an object for which ``str()`` returns a
            sentence.
        cure: Suggested fix; empty if no fix is known.

    Args:
        head: First line of the error message. By default, the first line says that the pipelines differ.
    """

    _head: ClassVar[str] = "cannot resume: the state was saved from another pipeline:"

    def __init__(self, differences: Iterable[object], cure: str = "", *, head: str = "") -> None:
        self.differences = tuple(differences)
        self.cure = cure
        shown = [f"  {difference}" for difference in self.differences[:_SHOWN_DIFFERENCES]]
        if len(self.differences) > len(shown):
            shown.append(f"  and {len(self.differences) - len(shown)} more")
        super().__init__("\n".join([head or self._head, *shown, *([cure] if cure else [])]))


class ShardGoneError(StateMismatchError):
    """The saved state needs rows of a shard that is no longer in the shard list."""


class DamagedStateError(StateMismatchError):
    """A value in a saved state is missing, has the wrong type, or is out of range.

    Attributes:
        path: Location of the value in the state, such as ``state["position"]["pushed"]``.
        problem: Description of the expected value and the value found.
    """

    _head = "cannot resume: the state is damaged, or does not fit this pipeline:"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            [f"{path} {problem}"],
            "Open the dataset without this state, or with a state that state_dict() of this pipeline returned.",
        )
        self.path = path
        self.problem = problem


class RankError(AiostreamError, ValueError):
    """The rows or files cannot be distributed to the ranks, or the rank of this process cannot be determined."""


# -- errors in the data ------------------------------------------------------------------------


class DataError(AiostreamError):
    """Base class of errors in the content of data that was read successfully."""


class CorruptRecordError(DataError):
    """Stored bytes are damaged: a checksum, a length or a compressed stream is invalid.

    Attributes:
        url: URL of the damaged object, without secrets.
        offset: Byte offset of the damaged record, in the decompressed stream.
        reason: Description of the damaged bytes.
    """

    def __init__(self, url: str, offset: int, reason: str) -> None:
        super().__init__(f"{safe_url(url)} at byte {offset}: {reason}")
        self.url = safe_url(url)
        self.offset = offset
        self.reason = reason


class IndexFileError(DataError, ValueError):
    """The index file of a data set is malformed or truncated, or contains a forbidden entry.

    Attributes:
        url: URL of the index file, without secrets.
        line: Line number in the index file, starting at 1.
        reason: Description of the problem in the index file.
    """

    def __init__(self, url: str, line: int, reason: str) -> None:
        super().__init__(
            f"{safe_url(url)} line {line}: {reason}. Write the index again with aiostream_data.write_index()"
        )
        self.url = safe_url(url)
        self.line = line
        self.reason = reason


class ExampleParseError(DataError, ValueError):
    """A serialized ``tf.train.Example`` does not match the feature specification.

    Attributes:
        url: URL of the object without secrets, or "" if unknown.
        record: Index of the record in the object.
        feature: Name of the feature, or "" if the whole message is malformed.
        expected, found: Descriptions of the expected value and of the value found.
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


class DecodeError(DataError, ValueError):
    """An image, an array or another encoded value cannot be decoded.

    If a data set decodes the value, a note on the error names the file and the record.
    """


class SampleDecodeError(DataError, ValueError):
    """A member of a WebDataset sample cannot be decoded.

    A note on the error names the file and the record.

    Attributes:
        key: Key of the sample.
        extension: Extension of the member.
        reason: Description of the problem.
    """

    def __init__(self, key: str, extension: str, reason: str) -> None:
        super().__init__(f"cannot decode member '{key}.{extension}': {reason}")
        self.key = key
        self.extension = extension
        self.reason = reason


class CsvParseError(DataError, ValueError):
    """A record of a CSV file does not match the schema.

    Attributes:
        url: URL of the object without secrets, or "" if unknown.
        record: Index of the record in the object; the header is not a record.
        line: Number of the first line of the record, starting at 1; None if the reader started inside the object.
        column: Name of the column, or "" if the whole record is malformed.
        reason: Description of the problem.
    """

    def __init__(self, url: str, record: int, line: int | None, column: str, reason: str) -> None:
        where = f"{safe_url(url) or '<memory>'} " + (f"record {record}" if line is None else f"line {line}")
        super().__init__(f"{where}: " + (f"column {column!r}: " if column else "") + reason)
        self.url = safe_url(url)
        self.record = record
        self.line = line
        self.column = column
        self.reason = reason


class CsvSchemaError(DataError, ValueError):
    """The header or the columns of a CSV file do not match the schema of the dataset.

    Attributes:
        url: URL of the object without secrets.
        column: Name of the first column that does not match, or "".
        reason: Description of the problem.
    """

    def __init__(self, url: str, column: str, reason: str) -> None:
        super().__init__(f"{safe_url(url)}: {reason}")
        self.url = safe_url(url)
        self.column = column
        self.reason = reason


class TableSchemaError(DataError, ValueError):
    """The columns of a file differ from those of another file of the same dataset.

    Attributes:
        url: URL of the object without secrets.
        column: Name of the first column that differs.
        reason: Description of the problem, with the URL of the other file.
    """

    def __init__(self, url: str, column: str, reason: str) -> None:
        super().__init__(f"{safe_url(url)}: {reason}")
        self.url = safe_url(url)
        self.column = column
        self.reason = reason


class MdsError(DataError, ValueError):
    """The index of an MDS folder is invalid, or a value of a sample cannot be decoded.

    Attributes:
        url: URL of the index or of the shard, without secrets.
        record: Number of the sample in the shard; None for an index.
        column: Name of the column, or "".
        reason: Description of the problem.
    """

    def __init__(self, url: str, record: int | None, column: str, reason: str) -> None:
        where = safe_url(url) + ("" if record is None else f" sample {record}")
        super().__init__(f"{where}: " + (f"column {column!r}: " if column else "") + reason)
        self.url = safe_url(url)
        self.record = record
        self.column = column
        self.reason = reason


class TableSnapshotError(DataError, ValueError):
    """A version of a Delta or Iceberg table does not exist, cannot be loaded, or uses a feature that is not supported.

    Attributes:
        url: URL or name of the table, without secrets.
        feature: Name of the table feature that is not supported, or "".
        reason: Description of the problem.
    """

    def __init__(self, url: str, feature: str, reason: str) -> None:
        super().__init__(f"{safe_url(url)}: " + (f"table feature {feature!r}: " if feature else "") + reason)
        self.url = safe_url(url)
        self.feature = feature
        self.reason = reason


class SqlKeyError(DataError, ValueError):
    """The key column of ``from_sql`` is missing, NULL, not unique, or has an unsupported type.

    Attributes:
        key: Name of the column.
        reason: Description of the problem.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"from_sql(): the key {key!r} {reason}.")
        self.key = key
        self.reason = reason


class TfdsError(DataError, ValueError):
    """The description of a TensorFlow Datasets folder is invalid, or a value cannot be decoded.

    Attributes:
        url: URL of the description or of the shard, without secrets.
        record: Number of the record in the shard; None for a description.
        feature: Name of the feature, or "".
        reason: Description of the problem.
    """

    def __init__(self, url: str, record: int | None, feature: str, reason: str) -> None:
        where = safe_url(url) + ("" if record is None else f" record {record}")
        super().__init__(f"{where}: " + (f"feature {feature!r}: " if feature else "") + reason)
        self.url = safe_url(url)
        self.record = record
        self.feature = feature
        self.reason = reason


class JsonParseError(DataError, ValueError):
    """A record of a JSON lines file is not strict JSON, or does not match the schema.

    Attributes:
        url: URL of the object without secrets, or "" if unknown.
        record: Index of the record in the object; blank lines are not records.
        line: Number of the line, starting at 1; None if the reader started inside the object.
        offset: Byte offset of the damage in the decompressed stream; None if unknown.
        field: Keys from the record to the value, joined by dots; "" if the whole record is malformed.
        reason: Description of the problem.
    """

    def __init__(self, url: str, record: int, line: int | None, offset: int | None, field: str, reason: str) -> None:
        where = f"{safe_url(url) or '<memory>'} " + (f"record {record}" if line is None else f"line {line}")
        where += "" if offset is None else f" at byte {offset}"
        super().__init__(f"{where}: " + (f"field {field!r}: " if field else "") + reason)
        self.url = safe_url(url)
        self.record = record
        self.line = line
        self.offset = offset
        self.field = field
        self.reason = reason


class ExampleEncodeError(DataError, ValueError):
    """A value cannot be written as a feature of a ``tf.train.Example``.

    Attributes:
        feature: Name of the feature.
        reason: Reason why the value cannot be written.
    """

    def __init__(self, feature: str, reason: str) -> None:
        super().__init__(f"feature {feature!r}: {reason}")
        self.feature = feature
        self.reason = reason


class ArrowTypeError(DataError, TypeError):
    """A leaf has no Arrow form, or an Arrow column has a type that this package cannot read.

    Attributes:
        column: Path of the leaf or column, such as ``box.x``.
        reason: The type of the leaf or column, and the remedy.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"Arrow column {column!r}: {reason}")
        self.column = column
        self.reason = reason


class ArrowDataError(DataError, ValueError):
    """The buffers of an Arrow array contradict its type, or its text is not valid UTF-8.

    Attributes:
        column: Path of the column; "" if the error concerns the whole source.
        reason: Description of the invalid data, and the remedy.
        row: Number of the invalid row in the source, or None if the error does not concern a single row.
    """

    def __init__(self, column: str, reason: str, row: int | None = None) -> None:
        super().__init__(f"Arrow column {column!r}: {reason}" if column else f"Arrow source: {reason}")
        self.column = column
        self.reason = reason
        self.row = row


class BatchShapeError(DataError, ValueError):
    """Elements of one batch differ in shape, dtype or structure."""


class BatchCostError(DataError, ValueError):
    """A single element exceeds the maximum cost of a batch, and ``on_too_large`` is ``"raise"``.

    Attributes:
        record: Description of the record that the element was made from.
        cost: Cost of the element, in the unit of ``max_cost``.
        max_cost: Maximum total cost of the elements of a batch.
    """

    def __init__(self, record: str, cost: int, max_cost: int) -> None:
        super().__init__(
            f"cannot batch {record}: its cost {cost} exceeds max_cost={max_cost}. Shrink the record, raise max_cost, "
            "or set on_too_large='skip' or 'alone'"
        )
        self.record = record
        self.cost = cost
        self.max_cost = max_cost


class SignatureError(DataError, TypeError):
    """An element does not match its declared spec: ``signature=`` of ``from_generator``, or ``spec=``."""


class CastError(DataError, OverflowError):
    """A value does not fit into the dtype that ``cast()`` converts its column to.

    Attributes:
        column: Name of the column.
        value: The value.
        dtype: Name of the dtype.
    """

    def __init__(self, column: str, value: Any, dtype: str) -> None:
        super().__init__(
            f"cannot cast column {column!r}: the value {value!r} does not fit into {dtype}. Use a larger dtype, or "
            "pass casting='unsafe' to let NumPy change the value."
        )
        self.column = column
        self.value = value
        self.dtype = dtype


class ChoiceError(DataError, IndexError):
    """The choices passed to ``choose_from()`` contain an index for which no data set exists."""


class CardinalityError(DataError):
    """The number of elements is not the one that an operator or a method expects.

    Also raised if the numbers of input and output rows of an epoch are inconsistent, or a number exceeds 2**63 - 1.
    """


class DeviceLeafError(DataError, TypeError):
    """A leaf of a batch has a dtype that device memory cannot hold (bytes, str, objects, dates ...).

    Attributes:
        leaf: Path of the leaf in the batch.
        found: Description of the leaf's dtype.
        device: Name of the target device.
    """

    def __init__(self, leaf: str, found: str, device: str) -> None:
        super().__init__(
            f"leaf {leaf!r} is {found}, which {device} does not support. Drop the leaf, or convert it to numbers "
            "before to_device()"
        )
        self.leaf = leaf
        self.found = found
        self.device = device


class DeviceTargetError(DataError, ValueError):
    """A batch does not fit into the arrays passed to the method ``into()``.

    Attributes:
        leaf: Path of the leaf; "" if the error concerns the whole batch.
        reason: Description of the difference between the batch and the arrays.
    """

    def __init__(self, leaf: str, reason: str) -> None:
        where = f"target {leaf!r}" if leaf else "the targets"
        super().__init__(f"into() cannot write the batch to {where}: {reason}")
        self.leaf = leaf
        self.reason = reason


class SlotTooSmallError(DataError, ValueError):
    """A batch is larger than the declared maximum size of a device slot.

    No part of the batch was copied to the device.
    """


class ImageCastError(DataError, ValueError):
    """A batch contains no images, or contains images for which :class:`ImageCast` was not configured.

    Attributes:
        leaf: Path of the leaf; "" if no leaf contains images.
        reason: Reason why the images cannot be cast.
    """

    def __init__(self, leaf: str, reason: str) -> None:
        super().__init__(f"ImageCast: leaf {leaf!r}: {reason}" if leaf else f"ImageCast: {reason}")
        self.leaf = leaf
        self.reason = reason


# -- errors in user functions -------------------------------------------------------------------


class RecordError(AiostreamError):
    """A user function raised an exception in a worker process.

    If possible, the raised class also derives from the original exception's type, so ``except ValueError`` still works.

    Attributes:
        type_name: Qualified name of the type of the original exception.
        worker_traceback: Traceback from the worker process, as text.
        in_transit: True if an element or a result could not be pickled or unpickled; False if the function failed.
    """

    type_name: str = ""
    worker_traceback: str = ""
    in_transit: bool = False


class WorkerDiedError(AiostreamError):
    """A worker process exited while it was processing a record."""


class RecordTimeoutError(AiostreamError, TimeoutError):
    """A call of a user function exceeded the timeout of its stage."""


class StageTimeoutError(AiostreamError, TimeoutError):
    """No element arrived within the timeout ``open(stage_timeout=)``.

    Attributes:
        stage: Label of the stage that causes the delay; "" if no stage has started yet.
        waited_s: Seconds that the consumer waited for an element.
    """

    def __init__(self, stage: str, waited_s: float, limit_s: float, sentence: str) -> None:
        super().__init__(f"no element for {waited_s:.4g} s (stage_timeout={limit_s:.4g}): {sentence}")
        self.stage = stage
        self.waited_s = waited_s


class ErrorBudgetError(AiostreamError):
    """More records failed than the error policy of the stage allows.

    The cause of this exception is the error of the record that exceeded the limit.

    Attributes:
        stage: Label of the stage that failed.
        failures: Number of failed records, including the last one. A lost file counts as one failed record, and so does
            the lost remainder of a file.
        rows: Number of records that the stage had received, including the last one.
    """

    def __init__(self, stage: str, failures: int, rows: int, what: str, budget: str, last: str) -> None:
        super().__init__(
            f"{failures} of {rows} {what} failed in {stage}, but on_error allows {budget}. The last error was {last}"
        )
        self.stage = stage
        self.failures = failures
        self.rows = rows


class DeadLetterError(AiostreamError, ValueError):
    """A dead-letter log cannot be read, written, or replayed with this data set."""


# -- errors of stores and credentials -----------------------------------------------------


class StorageError(AiostreamError, OSError):
    """A store such as S3 did not deliver the requested data.

    Attributes:
        url: URL of the requested object or pattern, without secrets.
        reason: Description of the failure of the request.
        received: Number of bytes received from the beginning of the requested range.
        version: Version of the object that was read; "" if the store did not send a version.
        waited_s: Time in seconds for which the user's request limits delayed the request.
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
    """Stands in for an exception of another library, if the text of that exception contains a secret.

    A ``LibraryError`` appears only as the cause of other exceptions. Never raised.
    """


class NoMatchError(StorageError, FileNotFoundError):
    """No object in the store matches the pattern."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object or its bucket does not exist.

    Attributes:
        is_bucket: True if the bucket does not exist.
    """

    is_bucket = False


class AccessDeniedError(StorageError, PermissionError):
    """The store denied access with the given credentials."""


class CredentialsError(StorageError, PermissionError):
    """No credentials were found, or the credentials have expired.

    Attributes:
        is_expired: True if the store reports that the credentials have expired.
    """

    is_expired = False


class StoreUnreachableError(StorageError, ConnectionError):
    """A connection to the store could not be opened, or was lost.

    Attributes:
        is_final: True if retries cannot help, because the identity of the server could not be verified.
    """

    is_final = False


class StoreTimeoutError(StorageError, TimeoutError):
    """The store did not respond within the timeouts of the request."""


class StoreBusyError(StorageError):
    """The store temporarily refused the request (HTTP 429, 500, 503 or similar).

    Attributes:
        is_throttled: True if the store reports that the request rate is too high.
        retry_after_s: Seconds to wait before a retry, as requested by the store; None if not specified.
    """

    is_throttled = False
    retry_after_s: float | None = None


class WrongAnswerError(StorageError):
    """The store's response is inconsistent or does not match the request, and retries did not help."""


class ChecksumError(WrongAnswerError):
    """On every attempt, the received bytes of an object did not match the checksum that the store reported.

    Attributes:
        algorithm: Name of the checksum algorithm, such as "crc32c".
        expected, found: Checksum reported by the store, and checksum of the received bytes, in hexadecimal digits.
    """

    def __init__(self, url: str, algorithm: str, expected: str, found: str) -> None:
        super().__init__(
            url,
            f"checksum mismatch: the store reports {algorithm} {expected}, the received bytes have {found}. "
            "The object is damaged in the store or in transit; upload it again",
        )
        self.algorithm = algorithm
        self.expected = expected
        self.found = found


class RedirectRefusedError(StorageError):
    """The server sent a forbidden redirect: from HTTPS to HTTP, or to a URL of another protocol."""


class ShortReadError(StorageError):
    """The store delivered more or fewer bytes than requested."""


class ObjectChangedError(StorageError):
    """The object was modified or replaced after the listing, either before or during the read."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            url,
            f"{reason}. Do not change files while a run reads them. If no row of this file was delivered, resume the "
            'last state with allow=["shards"]',
        )


# -- errors of the installation and the machine --------------------------------------------------------


class WriteError(AiostreamError, OSError):
    """A file could not be written. No incomplete file was stored under the requested name.

    Attributes:
        url: URL of the output file, without secrets.
        errno: Error number of the operating system, or None.
    """

    def __init__(self, url: str, reason: str, number: int | None = None) -> None:
        super().__init__(f"{safe_url(url)}: {reason}")
        self.url = safe_url(url)
        self.errno = number

    def __str__(self) -> str:
        return str(self.args[0])


class WriterClosedError(AiostreamError, ValueError):
    """A writer was used after the writer was closed, or after its file was discarded.

    Attributes:
        url: URL of the output file, without secrets.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{safe_url(url)}: {reason}")
        self.url = safe_url(url)

    def __str__(self) -> str:
        return str(self.args[0])


class WriterFailedError(WriterClosedError, OSError):
    """A writer was used after one of its calls failed and its file was discarded.

    The cause of this error is the first error of the writer.
    """


class FormatPluginError(AiostreamError, ImportError):
    """An installed distribution offers a file format that cannot be loaded.

    Attributes:
        distribution: Name of the distribution.
        entry_point: Name of the entry point in the group ``aiostream_data.formats``.
        reason: Description of the problem.
    """

    def __init__(self, distribution: str, entry_point: str, reason: str) -> None:
        super().__init__(
            f"cannot load the format {entry_point!r} of the distribution {distribution}: {reason}. "
            "Update or uninstall this distribution, or call a constructor instead of open_any()."
        )
        self.distribution = distribution
        self.entry_point = entry_point
        self.reason = reason


class SqlQueryError(AiostreamError, RuntimeError):
    """A database has refused a connection or the query of ``from_sql``. The cause is the error of the driver."""


class MissingExtraError(AiostreamError, ImportError):
    """An optional Python package is not installed. The error message names the aiostream-data extra to install."""


class DeviceUnavailableError(AiostreamError, RuntimeError):
    """The requested device cannot be used on this machine.

    Attributes:
        absent: True if the machine has no GPU driver or no GPU. If ``absent`` is False, the error message describes the
            problem.
        status: CUDA status code of the failure, or None.
    """

    def __init__(self, message: str, *, absent: bool = False, status: int | None = None) -> None:
        super().__init__(message)
        self.absent = absent
        self.status = status


class DeviceMemoryError(AiostreamError, MemoryError):
    """The device slots, or a batch copied out of a slot, do not fit into device memory.

    Attributes:
        need: Size in bytes of the allocation that failed; None if unknown.
        free: Free memory of the device in bytes at the time of the failure; None if unknown.
        depth: Number of device slots requested; None if the failed allocation was not for slots.
    """

    def __init__(
        self, message: str, *, need: int | None = None, free: int | None = None, depth: int | None = None
    ) -> None:
        super().__init__(message)
        self.need = need
        self.free = free
        self.depth = depth


class PinningError(DeviceMemoryError):
    """The operating system could not page-lock ``need`` bytes of host memory for copies to the device."""


class DeviceError(AiostreamError, RuntimeError):
    """The device reported a failure, and data in its memory is no longer reliable.

    Attributes:
        status: CUDA status code of the failure, or None.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GraphCaptureError(AiostreamError, RuntimeError):
    """A batch cannot be delivered on a stream that is being captured into a CUDA graph. The batch is kept."""


class BatchReleasedError(AiostreamError, RuntimeError):
    """A device batch was used after its slot was released or its arrays were taken out."""


class LeasesHeldError(AiostreamError, RuntimeError):
    """The consumer still uses all device slots, so the batch that the consumer requested can never arrive.

    Attributes:
        depth: Number of device slots of the stage.
        waited_s: Seconds that the consumer waited for another batch.
    """

    def __init__(self, depth: int, waited_s: float) -> None:
        super().__init__(
            f"no device slot is free: the consumer holds the batches of all {depth} device slots and has waited "
            f"{waited_s:.3g} s for another batch. Release batches (a with block, release() or into()), or raise depth"
        )
        self.depth = depth
        self.waited_s = waited_s


class MemoryBudgetError(AiostreamError, MemoryError):
    """A buffer in the pipeline, or a record that decompression makes, does not fit into the memory limit.

    Attributes:
        url: URL, without secrets, of the compressed object with the record; "" for all other errors.
    """

    def __init__(self, message: str = "", url: str = "") -> None:
        super().__init__(message)
        self.url = safe_url(url)


class SpillError(AiostreamError, OSError):
    """Rows of ``shuffle`` or keys of ``unique`` could not be written to a spill file or read from the file.

    Attributes:
        folder: Folder that contains the spill file.
        nbytes: Size of the spill file in bytes when the error occurred.
    """

    def __init__(self, folder: str, nbytes: int, reason: str, cure: str) -> None:
        super().__init__(f"spill folder {folder} ({nbytes} bytes so far): {reason}; {cure}")
        self.folder = folder
        self.nbytes = nbytes

    def __str__(self) -> str:
        return str(self.args[0])


class ShardCacheError(AiostreamError, OSError):
    """The folder of the local shard cache cannot be used.

    Attributes:
        folder: Path of the cache folder.
    """

    def __init__(self, folder: str, reason: str, cure: str) -> None:
        super().__init__(f"shard cache {folder}: {reason}; {cure}")
        self.folder = folder

    def __str__(self) -> str:
        return str(self.args[0])


class SharedMemoryError(AiostreamError, OSError):
    """Shared memory could not be allocated. ``errno`` is the error number of the operating system, or None."""

    def __init__(self, reason: str, number: int | None = None) -> None:
        super().__init__(reason)
        self.errno = number

    def __str__(self) -> str:
        return str(self.args[0])


class CloseError(AiostreamError, ExceptionGroup[Exception]):
    """Exception group with the errors of stores or devices that failed to close.

    All other stores and devices were closed.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_group, (type(self), self.message, list(self.exceptions), dict(self.__dict__)))

    def derive(self, excs: Sequence[Exception]) -> CloseError:  # type: ignore[override]
        return CloseError(self.message, excs)


class ForkedPipelineError(AiostreamError, RuntimeError):
    """An open loader was used in a forked child process. Open the data set again in the child process."""


class UnknownElementError(AiostreamError, ValueError):
    """The origins of this element are unknown. The loader keeps only the origins of the last received element."""


class LoaderClosedError(AiostreamError, RuntimeError):
    """The loader is closed and returns no more elements."""
