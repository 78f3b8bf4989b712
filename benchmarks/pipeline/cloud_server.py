"""Servers that cost little CPU: nginx with sendfile from memory, four times: plain and TLS, near and 20 ms away.

The distance is a sleep within nginx (its lua module: a timer, no thread, no proxy), before the file is opened. Where
nginx or the module is not installed the package's own fault server takes its place, which sends files by sendfile as
well and speaks no TLS. S3 clients ask for ``/bucket/key``, and nobody checks their signatures; gcsfs asks for the path
of the JSON interface, which nginx maps to the same file. A listing is a file too, where someone has written its pages.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import busy_s, living_children
from benchmarks.pipeline.cloud_listing import nginx_location
from benchmarks.pipeline.cloud_work import BUCKET, MEMORY, Cell, Place, write_objects

NGINX_MODULES = Path("/usr/lib/nginx/modules")
LUA = ("ndk_http_module.so", "ngx_http_lua_module.so")
START_S = 20.0
KINDS = ((False, 0), (False, 20), (True, 0), (True, 20))
"""Places that there are: TLS, and milliseconds to the first byte."""


@dataclass
class Servers:
    """What serves the objects.

    Attributes:
        how: For the record.
        places: By TLS and latency in milliseconds; what is not there cannot be measured.
        processes: The server's, for their CPU seconds.
    """

    how: str
    places: dict[tuple[bool, int], Place] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)
    json_paths: bool = True

    def place(self, cell: Cell) -> Place | None:
        """Return where a cell is measured."""
        return self.places.get((cell.tls, cell.latency_ms))

    def busy_s(self) -> float:
        """Return the CPU seconds that the servers have used so far."""
        return sum(map(busy_s, self.processes))


@contextmanager
def servers() -> Iterator[Servers]:
    """Write the objects into memory (770 MB) and serve them for the block; :data:`MEMORY` names a file there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="aiostream-cloud-", dir=memory if memory.is_dir() else None) as name:
        objects = Path(name, "objects")
        write_objects(objects)
        memory_file = Path(name, "memory")
        memory_file.touch()
        os.environ[MEMORY] = str(memory_file)
        with serving(objects / BUCKET) as running:
            yield running


@contextmanager
def serving(folder: Path, kinds: Sequence[tuple[bool, int]] = KINDS) -> Iterator[Servers]:
    """Serve the files of a folder as the objects of a bucket for the block.

    Args:
        kinds: TLS and latency of every place that is wanted.
    """
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    has_lua = all((NGINX_MODULES / module).exists() for module in LUA)
    with _nginx(nginx, folder, kinds) if nginx and has_lua else _fault_servers(folder, kinds) as running:
        yield running


@contextmanager
def _nginx(program: str, objects: Path, kinds: Sequence[tuple[bool, int]]) -> Iterator[Servers]:
    with tempfile.TemporaryDirectory(prefix="aiostream-nginx-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "objects").mkdir()
        (folder / "objects" / BUCKET).symlink_to(objects.resolve())
        authority = _certificate(folder)
        ports = {kind: _free_port() for kind in kinds}
        settings = folder / "nginx.conf"
        settings.write_text(_nginx_settings(folder, ports))
        version = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr.strip()
        process = subprocess.Popen(
            [program, "-p", str(folder), "-e", f"{folder}/program.log", "-c", str(settings)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait_for(list(ports.values()), process, folder / "program.log")
            places = {
                kind: Place(f"{'https' if kind[0] else 'http'}://127.0.0.1:{port}", str(authority) if kind[0] else "")
                for kind, port in ports.items()
            }
            how = f"{version.partition(': ')[2]}, one process, sendfile, lua sleeps for the latency"
            yield Servers(how, places, [process.pid])
        finally:
            process.terminate()
            process.wait()


@contextmanager
def _fault_servers(folder: Path, kinds: Sequence[tuple[bool, int]]) -> Iterator[Servers]:
    from aiostream_data.testing.fault_server import fault_server
    from aiostream_data.testing.wire_model import WireModel

    before = set(living_children(os.getpid()))
    places: dict[tuple[bool, int], Place] = {}
    with ExitStack() as running:
        for is_tls, latency_ms in kinds:
            if not is_tls:
                wire = WireModel(first_byte_s=latency_ms / 1e3)
                server = running.enter_context(fault_server("s3", where="process", wire=wire))
                server.put_folder(BUCKET, folder)
                places[is_tls, latency_ms] = Place(server.endpoint_url)
        processes = [each for each in living_children(os.getpid()) if each not in before]
        how = "the package's fault server, a process for each latency, sendfile"
        yield Servers(how, places, processes, json_paths=False)


def _nginx_settings(folder: Path, ports: dict[tuple[bool, int], int]) -> str:
    modules = "".join(f"load_module {NGINX_MODULES / module};\n" for module in LUA)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"{modules}daemon off;\nmaster_process off;\nworker_processes 1;\npid {folder}/nginx.pid;\n"
        f"error_log {folder}/program.log;\nevents {{ worker_connections 4096; }}\n"
        f"http {{\naccess_log off;\n{temporary}default_type application/octet-stream;\netag on;\n"
        "sendfile on;\ntcp_nopush on;\nkeepalive_requests 1000000000;\nkeepalive_timeout 600s;\n"
        "open_file_cache max=4096 inactive=600s;\nopen_file_cache_valid 600s;\n"
        + "".join(_nginx_server(folder, port, tls, latency_ms) for (tls, latency_ms), port in ports.items())
        + "}\n"
    )


def _nginx_server(folder: Path, port: int, tls: bool, latency_ms: int) -> str:
    certificate = (
        f"ssl_certificate {folder}/server.pem;\nssl_certificate_key {folder}/server.key;\nssl_protocols TLSv1.3;\n"
    )
    sleep = f"access_by_lua_block {{ ngx.sleep({latency_ms / 1e3}) }}\n" if latency_ms else ""
    return (
        f"server {{\nlisten 127.0.0.1:{port}{' ssl' if tls else ''} backlog=1024;\nroot {folder}/objects;\n"
        f"{certificate if tls else ''}{sleep}"
        r"rewrite ^/(?:download/)?storage/v1/b/([^/]+)/o/(.+)$ /$1/$2 break;"
        f"\n{nginx_location()}}}\n"
    )


def _certificate(folder: Path) -> Path:
    """Make an authority and a certificate of its for 127.0.0.1; return the authority's."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=benchmark authority"
    )
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl(
        "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "1", "-days", "2",
        "-extfile", "extensions", "-out", "server.pem",
    )  # fmt: skip
    return folder / "ca.pem"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(ports: list[int], process: subprocess.Popen[Any], log: Path) -> None:
    deadline = time.monotonic() + START_S
    for port in ports:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"nginx did not start: {log.read_text()[-400:] if log.exists() else ''}")
            time.sleep(0.05)
