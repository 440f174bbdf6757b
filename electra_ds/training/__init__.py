"""Pretraining: optimizer, engine, run folder, checkpoints, meters, and the loop that uses them.

Start reading at ``loop.py``; ``main.py`` is what ``electra_ds/train.py`` calls.
"""
