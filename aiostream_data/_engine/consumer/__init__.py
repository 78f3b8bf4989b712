"""Deliver elements to the training loop.

Input: elements from the last stage, on the engine's event loop.
Output: the next element, or the error after the last element, on the consumer's thread or loop.
"""
