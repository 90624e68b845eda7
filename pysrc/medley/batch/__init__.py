"""A batch is a file of requests answered line by line, each once, however often the run is cut off."""
