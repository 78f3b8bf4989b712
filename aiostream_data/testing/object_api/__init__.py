"""How object stores speak HTTP, as plain functions from a request to an answer: S3, GCS, and plain HTTP."""
