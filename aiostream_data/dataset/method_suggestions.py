"""Method and argument names of tf.data, PyTorch and other libraries, with their equivalents in this package.

:class:`Hints` makes ``Dataset`` suggest the closest equivalent for an unknown method, argument or use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from aiostream_data.errors import ArgumentTypeError, UnknownNameError

ARGUMENTS: Final = MappingProxyType(
    {
        **dict.fromkeys(("num_workers", "num_proc"), "concurrency= of map(), or in_subprocess(workers=)"),
        **dict.fromkeys(("drop_last", "drop_last_batch"), "drop_remainder= of batch()"),
        **dict.fromkeys(("output_types", "output_shapes", "output_signature"), "signature="),
        **dict.fromkeys(("map_func", "func", "fn"), "function="),
        "batch_size": "batch()",
        "buffer_size": "prefetch(), or memory_limit= of open()",
        "collate_fn": "collate= of batch()",
        "compression_type": "compression=",
        "deterministic": "ordered=, or deterministic= of open()",
        "file_pattern": "pattern=",
        "filenames": "files=",
        "generator": "seed=",
        "num_parallel_calls": "concurrency= of map() and filter(), cycle_length= of interleave()",
        "num_parallel_reads": "cycle_length=",
        "pin_memory": "to_device()",
        "prefetch_factor": "prefetch()",
        "sampler": "shuffle(), and rank= and world_size= of open()",
        "shuffle": "shuffle(), or shuffle_shards= of files",
        "stop_on_empty_dataset": "stop=",
        "worker_init_fn": "init= of map()",
    }
)
"""Argument names of other libraries, with the equivalent names of this package.

Misspelled names need no entry, because the lookup also matches similar names.
"""

NAMES: Final = MappingProxyType(
    {
        **dict.fromkeys(("AUTOTUNE", "autotune"), "AUTO"),
        **dict.fromkeys(("TextLineDataset", "read_text"), "Dataset.from_text()"),
        **dict.fromkeys(("CsvDataset", "make_csv_dataset", "read_csv"), "Dataset.from_csv()"),
        **dict.fromkeys(("WebDataset", "WebLoader", "from_tar"), "Dataset.from_webdataset()"),
        **dict.fromkeys(("from_json", "read_json"), "Dataset.from_jsonl()"),
        **dict.fromkeys(("ParquetFile", "read_parquet", "scan_parquet"), "Dataset.from_parquet()"),
        **dict.fromkeys(
            ("ArrayRecordDataSource", "ArrayRecordReader", "from_arrayrecord"), "Dataset.from_array_record()"
        ),
        "from_h5": "Dataset.from_hdf5()",
        **dict.fromkeys(("from_lance", "from_zarr"), "from_generator() over slices of the array or table"),
        **dict.fromkeys(("DeltaTable", "read_delta", "scan_delta"), "Dataset.from_delta()"),
        **dict.fromkeys(("read_iceberg", "scan_iceberg"), "Dataset.from_iceberg()"),
        **dict.fromkeys(("from_feather", "from_ipc", "read_feather", "read_ipc", "scan_ipc"), "Dataset.from_arrow()"),
        **dict.fromkeys(("from_npz", "from_numpy_files", "read_npy", "load_npy"), "Dataset.from_npy()"),
        **dict.fromkeys(("from_pandas", "from_polars"), "Dataset.from_dataframe()"),
        **dict.fromkeys(("from_dict", "from_numpy", "from_tensor"), "Dataset.from_tensor_slices()"),
        **dict.fromkeys(
            ("ImageFolder", "from_directory", "from_folder", "from_images", "image_dataset_from_directory"),
            "Dataset.from_image_folder('folder')",
        ),
        **dict.fromkeys(("DataLoader", "make_one_shot_iterator", "make_iterator"), "Dataset.open()"),
        **dict.fromkeys(
            ("as_numpy_iterator", "iter_batches", "to_numpy"), "the dataset itself: its elements are NumPy"
        ),
        **dict.fromkeys(("prefetch_to_device", "to", "cuda", "with_format", "set_format"), "to_device()"),
        **dict.fromkeys(("distinct", "drop_duplicates", "deduplicate"), "unique()"),
        **dict.fromkeys(("accumulate", "cumulate"), "scan()"),
        "FixedLengthRecordDataset": "Dataset.from_fixed_length()",
        "TFRecordDataset": "Dataset.from_tfrecord()",
        "collate": "batch(collate=)",
        "load_dataset": "Dataset.from_hub() for the Hub, or Dataset.open_any()",
        "map_batches": "map(batched=True), or map() after batch()",
        "shape": "element_spec",
    }
)
"""Names from other libraries, with the equivalent names of this package."""


def unknown_name(owner: str, name: str, known: Collection[str]) -> AttributeError:
    """Return the error for a missing attribute. The error message suggests the closest known name."""
    said = f"{owner} has no attribute {name!r}"
    if name.startswith("_"):  # private names are looked up by programs, not by users
        return AttributeError(said)
    if name in NAMES:
        return UnknownNameError(f"{said}: use {NAMES[name]}")
    near = get_close_matches(name, [each for each in known if not each.startswith("_")], 1)
    return UnknownNameError(f"{said}" + (f": did you mean {near[0]}?" if near else ""))


def unknown_name_of_package(name: str, known: Collection[str], dataset: type) -> AttributeError:
    """Return the error for a name that the package does not export.

    If the name is a Dataset method, the message mentions that method.
    """
    if hasattr(dataset, name):
        return UnknownNameError(f"the package has no attribute {name!r}: use Dataset.{name}()")
    return unknown_name("the package", name, known)


class _Hinting(type):
    """Metaclass that suggests alternatives for unknown class attributes, such as ``Dataset.from_h5``."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise unknown_name(cls.__name__, name, dir(cls))


class Hints(metaclass=_Hinting):
    """Base class that rejects unsupported uses of a dataset and suggests a replacement."""

    def __init_subclass__(cls) -> None:
        """Make every public method reject unknown keyword arguments."""
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            if name.startswith("_"):
                continue
            if isinstance(method, classmethod):
                setattr(cls, name, classmethod(_checked(method.__func__)))
            elif inspect.isfunction(method):
                setattr(cls, name, _checked(method))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown_name(f"a {type(self).__name__}", name, dir(type(self)))

        def __getitem__(self, index: object) -> NoReturn:
            raise ArgumentTypeError(
                "a Dataset does not support indexing. Use next(iter(dataset)) for the first element, or "
                "skip(n).take(1) for a dataset of one element. For PyTorch's DataLoader, wrap the dataset in an "
                "IterableDataset."
            )

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
            """Return a NumPy array whose single element is this object.

            Without this method, NumPy would try to index the object.
            """
            array = np.empty((), object)
            array[()] = self
            return array

        def __next__(self) -> NoReturn:
            raise ArgumentTypeError("a Dataset is not an iterator. Use next(iter(dataset)), or iterate dataset.open().")

        def __enter__(self) -> NoReturn:
            raise ArgumentTypeError("a Dataset is not a context manager. Use with dataset.open() as loader.")

        def __exit__(self, *raised: object) -> None:
            """Do nothing. Python never calls this method, because ``__enter__`` always raises."""

        __aenter__, __aexit__ = __enter__, __exit__


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that an unknown keyword argument raises an error that suggests the correct name."""
    parameters = inspect.signature(method).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return method
    known = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)][1:]

    @wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for name in kwargs.keys() - set(known):
                raise _unknown_argument(method.__name__, name, known)
        return method(*args, **kwargs)

    return checked


def _unknown_argument(method: str, name: str, known: list[str]) -> ArgumentTypeError:
    near = get_close_matches(name, known, 1)
    if name in ARGUMENTS:
        cure = f": use {ARGUMENTS[name]}"
    elif near:
        cure = f": did you mean {near[0]}=?"
    else:
        cure = f"; its arguments are {', '.join(known)}" if known else "; it has no keyword arguments"
    return ArgumentTypeError(f"{method}() has no argument {name}={cure}")
