"""The generated pages and blocks of docs/reference, and the navigation of the site."""
