"""Find the hosts that could join a cluster, and prepare them."""
