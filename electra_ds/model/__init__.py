"""Model: encoder, heads, sampling, losses, and the objectives that join generator and discriminator.

Where to start reading: ``objectives/electra.py`` (a step of replaced token detection from top to bottom),
then ``objectives/hardness.py``; ``build.py`` makes a model from a configuration, ``context.py`` says what a
step takes and gives.
"""
