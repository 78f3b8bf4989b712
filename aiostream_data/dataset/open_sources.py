"""Complete the sources of a plan with facts that their files contain, when a dataset is opened."""

from __future__ import annotations

from aiostream_data.dataset.csv_schemas import with_schemas
from aiostream_data.dataset.image_folders import with_classes
from aiostream_data.dataset.mds_folders import with_columns
from aiostream_data.plan.base import Node


def completed(plan: Node) -> Node:
    """Return the plan with inferred schemas of text files, classes of image folders, and columns of MDS shards. Blocks.

    Raises:
        PlanError, DataError: The facts cannot be found; see the functions called here.
        StorageError: A store did not answer.
    """
    return with_columns(with_classes(with_schemas(plan)))
