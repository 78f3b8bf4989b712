"""Error policies for failed records, and the dead-letter log of skipped records.

Input: the ``on_error=`` argument, and failed records. Output: a decision for each failed record, and lines of the
dead-letter log.
"""
