"""Pretraining of ELECTRA-family encoders, from raw text to a Hugging Face model."""

__version__ = "0.1.0"
