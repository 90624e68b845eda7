"""What runs in the Python of an engine environment, never in medley's own: each file stands by itself."""
