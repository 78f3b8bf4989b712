"""URLs of files in data sets on the Hugging Face Hub: ``hf://datasets/ORGANIZATION/NAME@REVISION/PATH``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from aiostream_data.errors import PlanError
from aiostream_data.storage.urls import safe_url, split_url

DEFAULT_REVISION: Final = "main"

_NAME: Final = r"[A-Za-z0-9][\w.-]*"
_REPOSITORY: Final = re.compile(rf"{_NAME}/{_NAME}")
_URL: Final = re.compile(
    rf"datasets/({_NAME}/{_NAME})(?:@(refs/(?:convert/[^/]+|pr/[0-9]+)|[^/]+))?(?:/(.*))?", re.DOTALL
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


class HubPlace(NamedTuple):
    """A file, a folder or a pattern in a data set on the Hub.

    Attributes:
        repository: ``ORGANIZATION/NAME``.
        revision: Branch, tag or commit.
        path: Path in the repository, without a slash at its start.
        root: URL of the root of the repository at this revision, as it was given, with a slash at its end.
    """

    repository: str
    revision: str
    path: str
    root: str


def is_repository(name: str) -> bool:
    """Return True for a name such as ``ORGANIZATION/NAME``."""
    return _REPOSITORY.fullmatch(name) is not None


def is_commit(revision: str) -> bool:
    """Return True for the hash of a commit, whose files never change."""
    return _COMMIT.fullmatch(revision) is not None


def root_of(repository: str, revision: str) -> str:
    """Return the URL of the root of a repository, with a slash at its end."""
    return f"hf://datasets/{repository}@{quote(revision, safe='')}/"


def hub_place(url: str) -> HubPlace:
    """Parse a URL of the Hub.

    Raises:
        PlanError: The URL has another form.
    """
    text = split_url(url).path
    found = _URL.fullmatch(text)
    if found is None:
        raise PlanError(f"{safe_url(url)} must have the form hf://datasets/ORGANIZATION/NAME/PATH, or NAME@REVISION")
    path = found[3] or ""
    root = url[: len(url) - len(path)].rstrip("/") + "/"
    return HubPlace(found[1], unquote(found[2] or DEFAULT_REVISION), path, root)
