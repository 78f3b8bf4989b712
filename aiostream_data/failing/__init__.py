"""What becomes of records that fail: error policies, and the log of skipped ones.

Input: the argument on_error=, and failures.
Output: a decision per failure, and lines of the dead-letter log.
"""
