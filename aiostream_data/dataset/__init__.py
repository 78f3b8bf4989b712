"""Describe a pipeline: the Dataset, its constructors and its operators.

Input: arguments as users write them.
Output: a plan of frozen nodes; nothing is read.
"""

from aiostream_data.dataset.dataset import Dataset

__all__ = ["Dataset"]
