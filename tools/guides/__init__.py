"""The comparison with published guides: docs/explanation/published-guides.md."""
