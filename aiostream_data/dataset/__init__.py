"""Pipeline description: the Dataset class, its constructors and its operators.

Building a pipeline creates a plan of frozen (immutable) nodes and reads no data.
"""

from aiostream_data.dataset.dataset import Dataset

__all__ = ["Dataset"]
