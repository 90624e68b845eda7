"""Programs for those who work on medley: they write recorded files, and measure and check the tests."""
