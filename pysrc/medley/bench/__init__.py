"""A bench is an engine's own benchmark run against what is served, kept with all that makes it comparable."""
