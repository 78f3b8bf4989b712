"""Run ``cache()``: keep the rows of the first pass in memory, and replay the cached rows in later passes.

Input of the cache: chunks of rows in the first pass, cached rows in later passes.
Output of the cache: the input chunks, with row ids of the current epoch.
"""
