"""Handle failures of single rows: errors, losses, and the dead-letter log.

Input: exceptions of user functions and readers, with their rows.
Output: errors with short tracebacks, skipped or replaced rows, and one log line per failed row.
"""
