"""Choose the network and transport that a group of hosts shares, and describe the choice."""
