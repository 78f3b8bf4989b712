"""Deliver elements to the training loop.

Input: elements from the last stage, on the engine's event loop.
Output: the next element, or the final error, on the consumer's thread or event loop.
"""
