"""Error policies for failed records, and the dead-letter log of skipped records.

Input: the argument ``on_error=``, and the failures of records. Output: a decision for each failure, and lines of the
dead-letter log.
"""
