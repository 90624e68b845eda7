"""Engine environments: how they are locked, built, found and verified; container images."""
