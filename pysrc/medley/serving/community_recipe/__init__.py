"""Turn a recipe of sparkrun, or a published command, into the medley command that serves the same model."""
