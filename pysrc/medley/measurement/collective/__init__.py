"""Test the network of all hosts with an all-reduce and messages between pairs."""
