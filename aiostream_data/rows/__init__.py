"""What moves through a pipeline: chunks of rows with their ids, structures, and where rows came from.

Input: columns, records and structured elements.
Output: chunks, lineages and origins.
"""
