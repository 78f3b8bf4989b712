"""Error policies for failed records, and the dead-letter log of skipped records.

Input: the argument on_error=, and failures.
Output: a decision per failure, and lines of the dead-letter log.
"""
