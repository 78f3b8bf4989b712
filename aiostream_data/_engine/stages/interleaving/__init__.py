"""Run ``interleave()`` and ``flat_map()``: a user function makes a dataset of each element.

Input: chunks of outer rows, from which the user function makes inner datasets.
Output: chunks of the inner rows, in tf.data's order; row ids name the inner row and the outer row.
"""
