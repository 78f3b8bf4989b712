"""HTTP APIs of object stores (S3, GCS and plain HTTP), as functions from request to response."""
