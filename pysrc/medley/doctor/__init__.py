"""Check hosts, each alone and all as a group, and apply fixes."""
