"""Run windows, buckets and packing: gather rows into groups.

Input: chunks of rows.
Output: one row per group.
"""
