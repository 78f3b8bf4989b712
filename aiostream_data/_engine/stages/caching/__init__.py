"""Run ``cache()``: keep the rows of the first pass in memory and replay them.

Input: chunks of the first pass, or kept rows.
Output: the same chunks, with the row ids of the current epoch.
"""
