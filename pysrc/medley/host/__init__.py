"""One host: its facts, its kind and its health, parsed from transcripts."""
