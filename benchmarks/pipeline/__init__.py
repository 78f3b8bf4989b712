"""Measurements of whole pipelines of ours, each in this process."""
