"""Names that users of tf.data, PyTorch and other libraries know, and what to write here instead.

:class:`Hints` makes ``Dataset`` answer an unknown method, argument or use with the nearest thing that there is.
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
        "collate_fn": "map() after batch()",
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
"""What to write instead of an argument of another library; nearest spellings are found without being listed."""

NAMES: Final = MappingProxyType(
    {
        **dict.fromkeys(("AUTOTUNE", "autotune"), "AUTO"),
        **dict.fromkeys(("TextLineDataset", "read_text"), "Dataset.from_text()"),
        **dict.fromkeys(("CsvDataset", "from_csv", "read_csv"), "Dataset.from_text(), and a map() that splits lines"),
        **dict.fromkeys(("from_json", "from_jsonl", "read_json"), "Dataset.from_text().map(json.loads)"),
        **dict.fromkeys(("from_parquet", "from_arrow", "read_parquet"), "from_generator() over batches of pyarrow"),
        **dict.fromkeys(("from_list", "from_dict", "from_numpy", "from_tensor"), "Dataset.from_tensor_slices()"),
        **dict.fromkeys(
            ("ImageFolder", "from_directory", "from_folder", "from_images", "image_dataset_from_directory"),
            "Dataset.from_files('folder/*/*.jpg'), and a map() that reads the label from x['url']",
        ),
        **dict.fromkeys(("DataLoader", "make_one_shot_iterator", "make_iterator"), "Dataset.open()"),
        **dict.fromkeys(("as_numpy_iterator", "iter_batches", "to_numpy"), "the data set itself: elements are NumPy"),
        **dict.fromkeys(("prefetch_to_device", "to", "cuda", "with_format", "set_format"), "to_device()"),
        **dict.fromkeys(("with_options", "options"), "arguments of open(), such as deterministic="),
        "FixedLengthRecordDataset": "Dataset.from_fixed_length()",
        "TFRecordDataset": "Dataset.from_tfrecord()",
        "collate": "map() after batch()",
        "load_dataset": "a constructor, such as Dataset.from_files()",
        "map_batches": "map(batched=True), or map() after batch()",
        "reduce": "a loop over the data set",
        "shape": "element_spec",
    }
)
"""What to use instead of a name of another library."""


def unknown_name(owner: str, name: str, known: Collection[str]) -> AttributeError:
    """Return the error of an attribute that is not there, with what comes nearest."""
    said = f"{owner} has no attribute {name!r}"
    if name.startswith("_"):  # which programs ask for, not people
        return AttributeError(said)
    if name in NAMES:
        return UnknownNameError(f"{said}: use {NAMES[name]}")
    near = get_close_matches(name, [each for each in known if not each.startswith("_")], 1)
    return UnknownNameError(f"{said}" + (f": did you mean {near[0]}?" if near else ""))


def unknown_name_of_package(name: str, known: Collection[str], dataset: type) -> AttributeError:
    """Return the error of a name that the package does not export; methods of a data set are named as such."""
    if hasattr(dataset, name):
        return UnknownNameError(f"the package has no attribute {name!r}: use Dataset.{name}()")
    return unknown_name("the package", name, known)


class _Hinting(type):
    """Answers ``Dataset.from_csv``: a name of the class itself."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise unknown_name(cls.__name__, name, dir(cls))


class Hints(metaclass=_Hinting):
    """Uses that make no sense here, each refused with what to write; for a class of chained methods."""

    def __init_subclass__(cls) -> None:
        """Let every public method refuse arguments by name that it does not have."""
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
                "a Dataset has no elements by number: take(1) or skip(n).take(1) is a data set of one, "
                "next(iter(dataset)) is the first. PyTorch's DataLoader takes it inside an IterableDataset"
            )

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
            """Stay one object to NumPy, which would read whatever has elements by number."""
            array = np.empty((), object)
            array[()] = self
            return array

        def __next__(self) -> NoReturn:
            raise ArgumentTypeError("a Dataset is no iterator: write next(iter(dataset)), or iterate dataset.open()")

        def __enter__(self) -> NoReturn:
            raise ArgumentTypeError("a Dataset is opened first: write with dataset.open() as loader")

        def __exit__(self, *raised: object) -> None:
            """Never called."""

        __aenter__, __aexit__ = __enter__, __exit__


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that refuses unknown arguments by name, with the name that they have here."""
    parameters = inspect.signature(method).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return method
    known = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)][1:]

    @wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
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
        cure = f"; it takes {', '.join(known)}" if known else "; it takes none by name"
    return ArgumentTypeError(f"{method}() has no argument {name}={cure}")
