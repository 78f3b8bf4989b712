"""Data model of the pipeline: chunks of rows, row ids, element structures, lineage and origins."""
