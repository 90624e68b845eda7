"""The monitor is what hosts and engines do now: samples, the rates between two, and how they are shown."""
