"""Checks of hosts, each alone and all together, with what repairs them."""
