"""Hypothesis settings for this room: a busy machine is not a failing test."""

from hypothesis import settings

settings.register_profile("config", deadline=None, max_examples=60)
settings.load_profile("config")
