"""Description of pipelines: the Dataset class with its constructors and operators.

Building a pipeline creates a plan of frozen (immutable) nodes and reads no data.
"""

from aiostream_data.dataset.dataset import Dataset

__all__ = ["Dataset"]
