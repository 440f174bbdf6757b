"""Quickstart: one command from no text at all to a pretrained, exported and tried ELECTRA.

Where to start reading: ``main.py`` (the stages in order), ``training.py`` (launch, stop half-way, resume),
``corpus.py`` and ``prose.py`` (where the text comes from), ``showcase.py`` (what the result is shown on).
"""
