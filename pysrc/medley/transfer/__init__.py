"""A transfer brings a model from hosts that have it to those that lack it, in pieces known by hash."""
