"""Serve models on the hosts of a plan: from a request to the end of its server."""
