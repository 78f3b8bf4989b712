"""Requests to the API of the Hugging Face Hub: the commit of a revision, and the files of a folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
    WrongAnswerError,
)
from aiostream_data.storage.base import StoreOptions
from aiostream_data.storage.body import read_at_most
from aiostream_data.storage.http import open_session
from aiostream_data.storage.hub_urls import HubPlace
from aiostream_data.storage.object_size import as_object_nbytes
from aiostream_data.storage.retry_after import with_retry_after
from aiostream_data.storage.translate import translate_error, translate_status, translating

if TYPE_CHECKING:
    import aiohttp

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
_MAX_ANSWER_NBYTES: Final = 32 << 20
_MAX_PAGES: Final = 10_000
_NEXT: Final = re.compile(r'<([^>]*)>;\s*rel="next"')
_CAUSE: Final = "X-Error-Code"


def endpoint_of_hub(options: StoreOptions) -> str:
    """Return the URL of the Hub, without a slash at its end: the option ``endpoint``, or ``HF_ENDPOINT``.

    Raises:
        PlanError: The URL has no scheme.
    """
    given = options.get("endpoint") or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
    if not isinstance(given, str) or not given.startswith(("http://", "https://")):
        raise PlanError("endpoint of hf:// must be a URL that begins with https:// or http://")
    return given.rstrip("/")


def stored_token() -> str | None:
    """Return the token of the environment or of ``huggingface-cli login``, as huggingface_hub finds it. Blocks."""
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    named = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    if named:
        return named.strip()
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")).expanduser()
    try:
        return path.read_text().strip() or None
    except OSError:  # not logged in
        return None


class HubApi:
    """Client of the API. Use it from one event loop.

    Args:
        endpoint: URL of the Hub, without a slash at its end.
        options: Options of the store for HTTP, with the header that contains the token.
    """

    def __init__(self, endpoint: str, options: StoreOptions) -> None:
        self._endpoint = endpoint
        self._options = options
        self._session: aiohttp.ClientSession | None = None

    async def commit(self, url: str, place: HubPlace) -> str:
        """Return the commit of a revision."""
        answer, _ = await self._json(url, place, f"{self._api(place)}/revision/{quote(place.revision, safe='')}")
        commit = answer.get("sha") if isinstance(answer, Mapping) else None
        if not isinstance(commit, str) or not commit:
            raise WrongAnswerError(url, "the Hub answered without a commit; check the endpoint")
        return commit

    async def files(self, url: str, place: HubPlace, commit: str, folder: str, *, below: bool) -> dict[str, int]:
        """Return the sizes of the files in a folder by their paths in the repository.

        Args:
            below: True for the files in all folders below too.
        """
        found: dict[str, int] = {}
        page = f"{self._api(place)}/tree/{commit}/{quote(folder)}".rstrip("/") + ("?recursive=true" if below else "")
        for _ in range(_MAX_PAGES):
            answer, following = await self._json(url, place, page)
            for entry in answer if isinstance(answer, list) else [None]:
                if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
                    raise WrongAnswerError(url, "the Hub answered with a malformed listing; check the endpoint")
                if entry.get("type") == "file":
                    found[entry["path"]] = as_object_nbytes(url, entry.get("size"))
            if not following:
                return found
            page = urljoin(page, following)
            if not page.startswith(self._endpoint + "/"):
                raise WrongAnswerError(url, "the Hub names a page of its listing on another server")
        raise WrongAnswerError(url, f"the listing has more than {_MAX_PAGES} pages")

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _api(self, place: HubPlace) -> str:
        return f"{self._endpoint}/api/datasets/{place.repository}"

    async def _json(self, url: str, place: HubPlace, request: str) -> tuple[Any, str]:
        """Return an answer, and the URL of the next page or ""."""
        if self._session is None:
            self._session = open_session(self._options)
        import yarl

        with translating(url, translate_error):
            async with self._session.get(yarl.URL(request, encoded=True)) as answer:
                body = await read_at_most(answer.content, _MAX_ANSWER_NBYTES + 1)
                if answer.status != 200:
                    cause = answer.headers.get(_CAUSE, "")
                    raise with_retry_after(self._refusal(url, place, answer.status, cause), answer.headers)
                following = _NEXT.search(answer.headers.get("Link", ""))
        if len(body) > _MAX_ANSWER_NBYTES:
            raise WrongAnswerError(url, f"the Hub answered with more than {_MAX_ANSWER_NBYTES} bytes")
        try:
            return json.loads(body), following[1] if following else ""
        except (ValueError, RecursionError) as error:
            raise WrongAnswerError(url, "the Hub answered with text that is not JSON; check the endpoint") from error

    def _refusal(self, url: str, place: HubPlace, status: int, cause: str) -> StorageError:
        page = f"{self._endpoint}/datasets/{place.repository}"
        if cause == "GatedRepo":
            reason = f"access to this data set must be requested on its page. Open {page}, and pass token="
            return AccessDeniedError(url, reason)
        if cause == "RevisionNotFound":
            return ObjectNotFoundError(url, f"the data set has no revision {place.revision!r}. See {page}/refs")
        if cause == "RepoNotFound" or status == 401:
            reason = f"the Hub has no data set {place.repository!r}, or it is private. Check the name, or pass token="
            return CredentialsError(url, reason) if status == 401 else ObjectNotFoundError(url, reason)
        if cause == "EntryNotFound":
            return ObjectNotFoundError(url, "the data set has no such file or folder")
        return translate_status(url, status, detail=cause)
