"""Keep what went wrong with single rows: failures, losses, and the dead-letter log.

Input: exceptions of user functions and readers, with the rows they belong to.
Output: errors with short tracebacks, skipped or replaced rows, and log lines, each written once.
"""
