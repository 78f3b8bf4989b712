"""Leave out the list of files of datasets that read one file, such as ``Dataset.from_parquet(file)``.

A function of ``interleave`` may return such a dataset for each file. Its list would have a run, and a row id, of its
own, and its rows could not be read together with those of the next file.
"""

from __future__ import annotations

from dataclasses import replace

from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Interleave
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.sources import ListFiles
from aiostream_data.plan.tables import reads_files
from aiostream_data.storage.urls import has_magic


def with_single_tables(plan: Node) -> Node:
    """Return the plan with the source of a file in place of a list with this one file.

    The error policy of the file then also applies if it is missing, as for files of records.
    """
    return replaced(plan, _table_of)


def _table_of(node: Node) -> Node | None:
    if not isinstance(node, Interleave) or not isinstance(node.input, ListFiles) or not reads_files(node.function):
        return None
    if not _names_one_file(node.input):
        return None
    file: Node = node.function(node.input.patterns[0]).plan
    return replace(file, written_at=node.written_at)


def _names_one_file(files: ListFiles) -> bool:
    if len(files.patterns) != 1 or files.index_url is not None or files.share is not None:
        return False
    if files.seed is not None or files.permuted is not None:
        return False
    try:
        return not has_magic(files.patterns[0])
    except PlanError:  # the run of the list raises it
        return False
