"""Folders of images with one folder per class, as torchvision's ``ImageFolder`` reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from aiostream_data.errors import NoMatchError, PlanError
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.rows.columns import object_array
from aiostream_data.rows.records import Columns, ShardRef
from aiostream_data.rows.shard_table import ShardTable, ShardTableWriter, sizes_of, urls_of
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.safe_url import safe_url, shorten

SUFFIXES: Final = (
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)
"""Endings of the names of images, in lower case. Other files are ignored."""

_SUFFIX_LENGTH: Final = max(map(len, SUFFIXES))
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def path_below(url: str, start: int) -> str:
    """Return the path of a listed URL below a folder whose path, without ``scheme://``, has ``start`` characters."""
    scheme = _SCHEME.match(url)
    return url[start if scheme is None else start + scheme.end() :]


@dataclass(frozen=True, kw_only=True)
class ImageFolderFormat(WholeFileFormat):
    """Format with one image per file. The folder of an image is its class.

    Attributes:
        classes: Names of the class folders in the order of their labels; None until they are known.
        root: Path of the folder that contains the class folders, without ``scheme://``. It ends with ``/``.
    """

    classes: tuple[str, ...] | None = None
    root: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return "image_folder"

    def chosen(self, shards: Sequence[ShardRef]) -> ShardTable:
        """Return the images of a listing. See :class:`.ChoosesObjects`.

        Raises:
            NoMatchError: A class has no image.
            PlanError: The classes are not known.
        """
        if self.classes is None:
            raise PlanError(
                "from_image_folder() finds its classes only when its dataset is opened by itself, but a function "
                "returned this dataset. Pass classes=image_classes(url)."
            )
        counts = dict.fromkeys(self.classes, 0)
        kept = list(self._images(urls_of(shards), counts))
        for name, count in counts.items():
            if not count:
                raise NoMatchError(
                    safe_url(self.root + name),
                    f"the class folder {shorten(repr(name))} contains no image (a file that ends with one of "
                    f"{', '.join(SUFFIXES)}). Remove the folder, or pass classes= without its name",
                )
        if isinstance(shards, ShardTable) and len(kept) == len(shards):
            return shards
        return _part(shards, kept)

    def _images(self, urls: Sequence[str], counts: dict[str, int]) -> Iterator[int]:
        """Yield the places of the URLs that are images of a class, and count the images of each class."""
        root = "\0"  # what all URLs below the folder begin with, found at the first of them
        for place, url in enumerate(urls):
            if not url.startswith(root):
                path = path_below(url, 0)
                if not path.startswith(self.root):
                    continue
                root = url[: len(url) - len(path) + len(self.root)]
            below = url[len(root) :]
            name, slash, _ = below.partition("/")
            if slash and name in counts and url[-_SUFFIX_LENGTH:].lower().endswith(SUFFIXES) and "/." not in below:
                counts[name] += 1
                yield place


def _part(shards: Sequence[ShardRef], kept: Sequence[int]) -> ShardTable:
    prefix = shards.prefix if isinstance(shards, ShardTable) else ""
    urls, sizes, start = urls_of(shards), sizes_of(shards), len(prefix)
    writer = ShardTableWriter(prefix)
    for place in kept:
        writer.add(urls[place][start:], sizes[place], shards[place].version)
    return writer.table()


@dataclass(frozen=True)
class ImageLabels:
    """Row-wise decoder that converts an image file to ``{"image": bytes, "label": int64, "path": str}``.

    The label is the place of the name of its folder in ``classes``. The path begins below the root folder.

    Attributes:
        root, classes: As for :class:`ImageFolderFormat`.
    """

    root: str
    classes: tuple[str, ...]

    wraps: ClassVar[bool] = True
    label: ClassVar[str] = "image_labels"
    structure: ClassVar[Structure] = Structure("dict", ("image", "label", "path"), (LEAF,) * 3)
    element_specs: ClassVar[tuple[tuple[tuple[int, ...], object, bool], ...]] = (
        ((), object, False),
        ((), np.dtype(np.int64), False),
        ((), object, False),
    )

    @cached_property
    def _labels(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    def parse(self, chunk: Columns, describe: Callable[[int], tuple[str, int]]) -> Columns:
        """Add label and path to each record of a chunk. The images are not copied."""
        start, labels = len(self.root), self._labels
        paths = [path_below(describe(row)[0], start) for row in range(len(chunk))]
        numbers = np.fromiter((labels[path.partition("/")[0]] for path in paths), np.int64, len(paths))
        return Columns(self.structure, (*chunk.leaves, numbers, object_array(paths)), chunk.ids)
