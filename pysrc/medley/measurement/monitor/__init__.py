"""Sample the hosts of a cluster, and show their rates."""
