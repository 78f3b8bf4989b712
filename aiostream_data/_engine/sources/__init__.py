"""Read rows from shards, memory and Python iterables.

Input of a source: listed shards, byte ranges from stores, arrays, or iterators.
Output of a source: chunks of rows with their row ids, byte offsets and losses (skipped records).
"""
