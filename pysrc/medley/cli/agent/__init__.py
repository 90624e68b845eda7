"""Answer the requests of another host over ssh."""
