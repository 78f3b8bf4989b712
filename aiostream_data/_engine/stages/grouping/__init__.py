"""Run windows, bucketing and packing: combine rows into groups.

Input: chunks of rows.
Output: one row per group.
"""
