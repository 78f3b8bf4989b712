"""The ways in which batches come to a GPU, one file for each family of them."""
