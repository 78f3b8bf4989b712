"""aiostream_data: stream training data from object stores into NumPy and GPU batches.

This module lists the public names of the package. Each public name is imported on first use, to keep ``import
aiostream_data`` fast.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiostream_data import errors
    from aiostream_data.dataset.dataset import Dataset
    from aiostream_data.dataset.shard_index import write_index
    from aiostream_data.device.device_batch import DeviceBatch
    from aiostream_data.device.image_cast import ImageCast
    from aiostream_data.errors import (
        AccessDeniedError,
        AiostreamError,
        ArgumentTypeError,
        ArrowDataError,
        ArrowTypeError,
        BatchCostError,
        BatchReleasedError,
        BatchShapeError,
        CardinalityError,
        ChecksumError,
        ChoiceError,
        CloseError,
        CorruptRecordError,
        CredentialsError,
        DamagedStateError,
        DataError,
        DeadLetterError,
        DeviceError,
        DeviceLeafError,
        DeviceMemoryError,
        DeviceTargetError,
        DeviceUnavailableError,
        ErrorBudgetError,
        ExampleEncodeError,
        ExampleParseError,
        ForkedPipelineError,
        GraphCaptureError,
        ImageCastError,
        IndexFileError,
        LeasesHeldError,
        LibraryError,
        LoaderClosedError,
        MemoryBudgetError,
        MissingExtraError,
        NoMatchError,
        NotPicklableError,
        ObjectChangedError,
        ObjectNotFoundError,
        PinningError,
        PlanError,
        RankError,
        RecordError,
        RecordTimeoutError,
        RedirectRefusedError,
        RowIndexError,
        ShardCacheError,
        ShardGoneError,
        SharedMemoryError,
        ShortReadError,
        SignatureError,
        SlotTooSmallError,
        SpillError,
        StageBuildError,
        StageTimeoutError,
        StateMismatchError,
        StorageError,
        StoreBusyError,
        StoreTimeoutError,
        StoreUnreachableError,
        UnknownElementError,
        UnknownLengthError,
        UnknownNameError,
        WorkerDiedError,
        WriteError,
        WriterClosedError,
        WriterFailedError,
        WrongAnswerError,
    )
    from aiostream_data.failing.policies import Quarantine, Replace, Retry, Skip
    from aiostream_data.formats.example import parse_example
    from aiostream_data.formats.example_writer import encode_example, encode_sequence_example
    from aiostream_data.formats.features import FixedLen, FixedLenSequence, Ragged, VarLen
    from aiostream_data.formats.tfrecord_writer import TFRecordWriter
    from aiostream_data.loading.loader import Loader
    from aiostream_data.metrics.stream_hash import combine_hashes
    from aiostream_data.plan.base import AUTO, INFINITE, UNKNOWN
    from aiostream_data.plan.spec import ArraySpec
    from aiostream_data.ranks import Ranks
    from aiostream_data.rows.arrow.arrow_batch import ArrowBatch
    from aiostream_data.rows.provenance import Origin
    from aiostream_data.rows.ragged import RaggedArray
    from aiostream_data.storage.cache.options import ShardCache
    from aiostream_data.transforms.shuffle_quality import ShuffleQuality

__version__ = "0.1.0"

_ERRORS = (
    "AccessDeniedError",
    "AiostreamError",
    "ArgumentTypeError",
    "ArrowDataError",
    "ArrowTypeError",
    "BatchCostError",
    "BatchReleasedError",
    "BatchShapeError",
    "CardinalityError",
    "ChecksumError",
    "ChoiceError",
    "CloseError",
    "CorruptRecordError",
    "CredentialsError",
    "DamagedStateError",
    "DataError",
    "DeadLetterError",
    "DeviceError",
    "DeviceLeafError",
    "DeviceMemoryError",
    "DeviceTargetError",
    "DeviceUnavailableError",
    "ErrorBudgetError",
    "ExampleEncodeError",
    "ExampleParseError",
    "ForkedPipelineError",
    "GraphCaptureError",
    "ImageCastError",
    "IndexFileError",
    "LeasesHeldError",
    "LibraryError",
    "LoaderClosedError",
    "MemoryBudgetError",
    "MissingExtraError",
    "NoMatchError",
    "NotPicklableError",
    "ObjectChangedError",
    "ObjectNotFoundError",
    "PinningError",
    "PlanError",
    "RankError",
    "RecordError",
    "RecordTimeoutError",
    "RedirectRefusedError",
    "RowIndexError",
    "ShardCacheError",
    "ShardGoneError",
    "SharedMemoryError",
    "ShortReadError",
    "SignatureError",
    "SlotTooSmallError",
    "SpillError",
    "StageBuildError",
    "StageTimeoutError",
    "StateMismatchError",
    "StorageError",
    "StoreBusyError",
    "StoreTimeoutError",
    "StoreUnreachableError",
    "UnknownElementError",
    "UnknownLengthError",
    "UnknownNameError",
    "WorkerDiedError",
    "WriteError",
    "WriterClosedError",
    "WriterFailedError",
    "WrongAnswerError",
)

_HOME = {
    **dict.fromkeys(_ERRORS, "errors"),
    "AUTO": "plan.base",
    "INFINITE": "plan.base",
    "UNKNOWN": "plan.base",
    "ArraySpec": "plan.spec",
    "ArrowBatch": "rows.arrow.arrow_batch",
    "Dataset": "dataset",
    "DeviceBatch": "device.device_batch",
    "FixedLen": "formats.features",
    "FixedLenSequence": "formats.features",
    "ImageCast": "device.image_cast",
    "Loader": "loading.loader",
    "Origin": "rows.provenance",
    "Quarantine": "failing.policies",
    "Ragged": "formats.features",
    "RaggedArray": "rows.ragged",
    "Ranks": "ranks",
    "Replace": "failing.policies",
    "Retry": "failing.policies",
    "ShardCache": "storage.cache.options",
    "ShuffleQuality": "transforms.shuffle_quality",
    "Skip": "failing.policies",
    "TFRecordWriter": "formats.tfrecord_writer",
    "VarLen": "formats.features",
    "combine_hashes": "metrics.stream_hash",
    "encode_example": "formats.example_writer",
    "encode_sequence_example": "formats.example_writer",
    "parse_example": "formats.example",
    "write_index": "dataset.shard_index",
}

__all__ = [
    "AUTO",
    "INFINITE",
    "UNKNOWN",
    "AccessDeniedError",
    "AiostreamError",
    "ArgumentTypeError",
    "ArraySpec",
    "ArrowBatch",
    "ArrowDataError",
    "ArrowTypeError",
    "BatchCostError",
    "BatchReleasedError",
    "BatchShapeError",
    "CardinalityError",
    "ChecksumError",
    "ChoiceError",
    "CloseError",
    "CorruptRecordError",
    "CredentialsError",
    "DamagedStateError",
    "DataError",
    "Dataset",
    "DeadLetterError",
    "DeviceBatch",
    "DeviceError",
    "DeviceLeafError",
    "DeviceMemoryError",
    "DeviceTargetError",
    "DeviceUnavailableError",
    "ErrorBudgetError",
    "ExampleEncodeError",
    "ExampleParseError",
    "FixedLen",
    "FixedLenSequence",
    "ForkedPipelineError",
    "GraphCaptureError",
    "ImageCast",
    "ImageCastError",
    "IndexFileError",
    "LeasesHeldError",
    "LibraryError",
    "Loader",
    "LoaderClosedError",
    "MemoryBudgetError",
    "MissingExtraError",
    "NoMatchError",
    "NotPicklableError",
    "ObjectChangedError",
    "ObjectNotFoundError",
    "Origin",
    "PinningError",
    "PlanError",
    "Quarantine",
    "Ragged",
    "RaggedArray",
    "RankError",
    "Ranks",
    "RecordError",
    "RecordTimeoutError",
    "RedirectRefusedError",
    "Replace",
    "Retry",
    "RowIndexError",
    "ShardCache",
    "ShardCacheError",
    "ShardGoneError",
    "SharedMemoryError",
    "ShortReadError",
    "ShuffleQuality",
    "SignatureError",
    "Skip",
    "SlotTooSmallError",
    "SpillError",
    "StageBuildError",
    "StageTimeoutError",
    "StateMismatchError",
    "StorageError",
    "StoreBusyError",
    "StoreTimeoutError",
    "StoreUnreachableError",
    "TFRecordWriter",
    "UnknownElementError",
    "UnknownLengthError",
    "UnknownNameError",
    "VarLen",
    "WorkerDiedError",
    "WriteError",
    "WriterClosedError",
    "WriterFailedError",
    "WrongAnswerError",
    "combine_hashes",
    "encode_example",
    "encode_sequence_example",
    "errors",
    "parse_example",
    "write_index",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("aiostream_data.errors")
    if name not in _HOME:
        if (
            name.startswith("_") or find_spec(f"{__name__}.{name}") is not None
        ):  # the import system looks up submodules and private names before it imports them
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise import_module("aiostream_data.dataset.method_suggestions").unknown_name_of_package(
            name, __all__, __getattr__("Dataset")
        )
    value = getattr(import_module(f"aiostream_data.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
