"""Compare this package with tf.data: the same random plan runs in both, and must give the same elements.

A plan is JSON data: a source, and operators with their arguments. :mod:`.plans` draws plans, :mod:`.ours` and
:mod:`.tfdata` run them, and :mod:`.outcomes` describes what came out. ``tests/data/tfdata_outcomes.jsonl.xz`` contains
plans with the outcomes of TensorFlow, so that the tests need no TensorFlow.

:mod:`.docstrings` compares the examples in TensorFlow's docstrings: :mod:`.translation` and :mod:`.translated_names`
rewrite them for this package. ``tests/data/tfdata_docstrings.json`` contains what it found.
"""
