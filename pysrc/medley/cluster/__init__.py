"""Run a model over several hosts: cluster.toml, ssh and agents, Ray, units, discovery."""
