"""A server on this machine that speaks the endpoints of the Hugging Face Hub for data sets.

It knows revisions, listings in pages, private and gated repositories, and redirects downloads to another host name.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKEN = "hf_secret"
PAGE = 3
"""Number of entries of one page of a listing. The Hub has 1000."""

_API = re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(?:/(.*))?)?")
_FILE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass
class Repository:
    """A data set.

    Attributes:
        commits: Files of each commit by their paths.
        refs: Commit of each branch.
        is_private, is_gated: True if requests need the token.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    is_private: bool = False
    is_gated: bool = False

    def commit_of(self, revision: str) -> str:
        return self.refs.get(revision, revision)


@dataclass
class Hub:
    """What a running server serves.

    Attributes:
        endpoint: URL of the server.
        requests: Paths of the requests so far, without those for the bytes of files.
        downloads: Headers of the requests for the bytes of files.
        refuse: Statuses of the next answers, from the left.
        answers: Bodies of the next answers, from the left.
        link: Header ``Link`` of these answers.
    """

    endpoint: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    downloads: list[Mapping[str, str]] = field(default_factory=list)
    refuse: list[int] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    link: str = ""

    @property
    def endpoint_url(self) -> str:
        return self.endpoint

    def create_bucket(self, name: str) -> None:
        """Do nothing: :meth:`put` creates data sets."""

    def put(self, url: str, data: bytes) -> None:
        """Add a file to the newest commit of a data set. ``url`` is ``hf://datasets/ORGANIZATION/NAME/PATH``."""
        _, organization, name, path = url.partition("://")[2].split("/", 3)
        found = f"{organization}/{name}"
        commit = self.repositories[found].refs["main"] if found in self.repositories else self.commit(found, {})
        self.repositories[found].commits[commit][path] = data

    def commit(self, name: str, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Add a commit with these files to a data set, and return its hash."""
        repository = self.repositories.setdefault(name, Repository())
        number = f"{name} {len(repository.commits)}"
        commit = hashlib.sha1(number.encode(), usedforsecurity=False).hexdigest()
        repository.commits[commit] = dict(files)
        repository.refs[branch] = commit
        return commit


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a server for the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.port = self.server_address[1]
        self.hub = Hub(f"http://127.0.0.1:{self.port}")

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients may go away early."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    def do_GET(self) -> None:
        hub: Hub = self.server.hub
        parts = urlsplit(self.path)
        if parts.path.startswith("/cdn/"):
            hub.downloads.append({name.lower(): value for name, value in self.headers.items()})
            name, commit, path = (unquote(part) for part in parts.path.removeprefix("/cdn/").split("/", 2))
            self._send_range(hub.repositories[name].commits[commit][path])
            return
        hub.requests.append(self.path)
        if hub.refuse:
            self._answer(hub.refuse.pop(0), b"")
            return
        if hub.answers:
            self._answer(200, hub.answers.pop(0), {"Link": hub.link})
            return
        api, file = _API.fullmatch(parts.path), _FILE.fullmatch(parts.path)
        found = api or file
        repository = hub.repositories.get(found[1]) if found else None
        knows_token = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if found is None or repository is None or (repository.is_private and not knows_token):
            self._refuse(401, "RepoNotFound")
        elif repository.is_gated and file and not knows_token:  # everyone may see the names of the files
            self._refuse(403 if "Authorization" in self.headers else 401, "GatedRepo")
        elif api and api[2] == "tree":
            commit = repository.commit_of(unquote(api[3]))
            self._tree(repository, commit, unquote(api[4] or ""), parse_qs(parts.query))
        elif api:
            commit = repository.commit_of(unquote(api[3] or "main"))
            if commit in repository.commits:
                self._answer(200, json.dumps({"id": found[1], "sha": commit}).encode())
            else:
                self._refuse(404, "RevisionNotFound")
        else:
            assert file
            self._resolve(repository, file[1], repository.commit_of(unquote(file[2])), unquote(file[3]))

    do_HEAD = do_GET

    def _tree(self, repository: Repository, commit: str, folder: str, query: Mapping[str, list[str]]) -> None:
        start = folder.rstrip("/") + "/" if folder else ""
        files = {path: data for path, data in repository.commits.get(commit, {}).items() if path.startswith(start)}
        if commit not in repository.commits or (start and not files):
            self._refuse(404, "EntryNotFound" if commit in repository.commits else "RevisionNotFound")
            return
        deep = query.get("recursive") == ["true"]
        entries: dict[str, dict[str, Any]] = {}
        for path, data in sorted(files.items()):
            name, slash, _ = path[len(start) :].partition("/")
            if slash:
                entries[start + name] = {"type": "directory", "path": start + name, "size": 0, "oid": "0"}
            if deep or not slash:
                entries[path] = {"type": "file", "path": path, "size": len(data), "oid": "1"}
        first = int(query.get("cursor", ["0"])[0])
        listed = list(entries.values())[first : first + PAGE]
        headers = {}
        if first + PAGE < len(entries):
            more = f"{urlsplit(self.path).path}?recursive={str(deep).lower()}&cursor={first + PAGE}"
            headers["Link"] = f'<{self.server.hub.endpoint}{more}>; rel="next"'
        self._answer(200, json.dumps(listed).encode(), headers)

    def _resolve(self, repository: Repository, name: str, commit: str, path: str) -> None:
        if path not in repository.commits.get(commit, {}):
            self._refuse(404, "EntryNotFound")
            return
        place = "/".join(quote(part, safe="") for part in (name, commit, path))
        self._answer(302, b"", {"Location": f"http://localhost:{self.server.port}/cdn/{place}?signature=x"})

    def _send_range(self, data: bytes) -> None:
        given = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, stop = (int(given[1]), min(int(given[2]) + 1, len(data))) if given else (0, len(data))
        if given and start >= len(data):
            self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            return
        headers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"} if given else {}
        self._answer(206 if given else 200, data[start:stop], {**headers, "ETag": '"cdn"'})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, json.dumps({"error": code}).encode(), {"X-Error-Code": code})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
