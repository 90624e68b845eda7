"""Measure the link to another host, and compare it with its expected speed."""
