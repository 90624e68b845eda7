"""Benchmark a server or an engine with its own benchmark, record the figures, and compare them."""
