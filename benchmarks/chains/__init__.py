"""Small chains of one source or operator each, beside other loaders: who is behind where things are small."""
