"""Data: corpus reading, tokenizer, shards, the deterministic stream, masking, batches.

Where to start reading: ``prepare.py`` (text to shards), then ``stream.py`` (the order),
``examples.py`` (rows of a block), ``masking.py`` and ``loader.py`` (rows to batches).
"""
