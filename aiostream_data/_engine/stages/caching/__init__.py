"""Run cache(): keep rows of the first pass, and replay them.

Input: chunks of the first pass, or rows that were kept.
Output: the same chunks, with the ids of the epoch that replays them.
"""
