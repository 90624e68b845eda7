"""The tutorials: their commands, and the output that they show."""
