"""Keep everything a loader holds within its memory limit.

Input: sizes in bytes, asked for before data is requested and noted when it was made.
Output: permission to go on, leases that release their bytes when the last holder drops them, and blocks to reuse.
"""
