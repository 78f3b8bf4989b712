"""Small chains of one source or operator each, beside tf.data: who is behind where things are small."""
