"""Handle failures of single rows: errors, lost records, and the dead-letter log (the log of failed records).

Input: exceptions of user functions and readers, with their rows.
Output: errors with short tracebacks, skipped or replaced rows, and one log line per failed row.
"""
