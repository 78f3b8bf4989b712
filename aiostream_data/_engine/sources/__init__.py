"""Read rows from shards, memory and Python iterables.

Input: listed shards, byte ranges from stores, arrays and iterators.
Output: chunks of rows with their ids, byte offsets and losses.
"""
