"""Run windows, bucketing and packing: combine rows into groups.

Input: chunks of rows.
Output of a grouping step: one row per group of input rows.
"""
