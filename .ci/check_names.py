"""Refuse public names without documentation: each needs a docstring, and a mention in README.md or on a page."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def is_mentioned(name: str, text: str) -> bool:
    """True when the whole word occurs in the text."""
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def unmentioned(names: Iterable[str], text: str) -> list[str]:
    """Return complaints about names that are not in the text."""
    hidden = [name for name in names if not is_mentioned(name, text)]
    return [f"{name}: neither README.md nor a page of docs/ mentions it" for name in hidden]


def has_docstring(name: str, value: object, sources: str) -> bool:
    """True when a class, function or module has a docstring of its own, or a constant has one below its assignment."""
    if inspect.isclass(value):
        return bool(value.__dict__.get("__doc__"))
    if inspect.isroutine(value) or inspect.ismodule(value):
        return bool(value.__doc__)
    return re.search(rf'^{re.escape(name)}\b[^\n]*=[^\n]*\n"""', sources, re.MULTILINE) is not None


def main() -> None:
    sys.path.insert(0, str(ROOT))
    import aiostream_data

    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    sources = "\n".join(path.read_text() for path in (ROOT / "aiostream_data").rglob("*.py"))
    names = aiostream_data.__all__
    found = [
        f"{name}: has no docstring" for name in names if not has_docstring(name, getattr(aiostream_data, name), sources)
    ]
    found += unmentioned(names, text)
    if found:
        sys.exit("\n".join(found))
    print(f"{len(names)} public names, all of which have a docstring and are on a page")


if __name__ == "__main__":
    main()
