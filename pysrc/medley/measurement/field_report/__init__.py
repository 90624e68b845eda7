"""Write the results of one run on a user's hosts into one JSON file."""
