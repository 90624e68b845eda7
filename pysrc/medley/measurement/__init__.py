"""Measure: benchmarks of a server, tests of links and collectives, and the live monitor."""
