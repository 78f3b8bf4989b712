"""Files of pyiceberg in the memory of the process, as ``"py-io-impl": "memory_io.MemoryIO"``."""

from __future__ import annotations

import io
from typing import Any, Final

from pyiceberg.io import FileIO, InputFile, OutputFile

__all__ = ["FILES", "MemoryIO"]

FILES: Final[dict[str, bytes]] = {}
"""Content of each file by its URL."""


class MemoryIO(FileIO):
    def new_input(self, location: str) -> Any:
        return _File(location)

    def new_output(self, location: str) -> Any:
        return _File(location)

    def delete(self, location: Any) -> None:
        del FILES[getattr(location, "location", location)]


class _File(InputFile, OutputFile):
    def __len__(self) -> int:
        return len(FILES[self.location])

    def exists(self) -> bool:
        return self.location in FILES

    def open(self, seekable: bool = True) -> Any:
        if not self.exists():
            raise FileNotFoundError(self.location)
        return io.BytesIO(FILES[self.location])

    def to_input_file(self) -> Any:
        return self

    def create(self, overwrite: bool = False) -> Any:
        return _Writing(self.location)


class _Writing(io.BytesIO):
    def __init__(self, location: str) -> None:
        super().__init__()
        self._location = location

    def close(self) -> None:
        FILES[self._location] = self.getvalue()
        super().close()
