"""Medley: one LLM server out of the NVIDIA boxes you own."""
