"""Programs for those who work on medley: they write documents and recorded outputs, and check the tests."""
