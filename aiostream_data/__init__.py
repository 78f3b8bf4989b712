"""aiostream_data: stream training data from object stores into NumPy and GPU batches."""

from aiostream_data import errors
from aiostream_data.dataset import Dataset
from aiostream_data.errors import AiostreamError
from aiostream_data.formats.example import parse_example
from aiostream_data.formats.example_writer import encode_example, encode_sequence_example
from aiostream_data.formats.features import FixedLen, Ragged, VarLen
from aiostream_data.formats.tfrecord_writer import TFRecordWriter
from aiostream_data.loader import Loader
from aiostream_data.plan.base import AUTO, INFINITE, UNKNOWN
from aiostream_data.plan.spec import ArraySpec
from aiostream_data.ragged import RaggedArray

__version__ = "0.1.0"

__all__ = [
    "AUTO",
    "INFINITE",
    "UNKNOWN",
    "AiostreamError",
    "ArraySpec",
    "Dataset",
    "FixedLen",
    "Loader",
    "Ragged",
    "RaggedArray",
    "TFRecordWriter",
    "VarLen",
    "encode_example",
    "encode_sequence_example",
    "errors",
    "parse_example",
]
