"""Keep everything a loader holds within its memory limit.

Input: sizes in bytes, reserved before data is requested and counted when data is created.
Output: reservations, leases that release their bytes when the last holder drops them, and reusable blocks.
"""
