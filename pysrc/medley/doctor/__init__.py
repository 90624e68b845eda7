"""The doctor looks at hosts before anything is started on them: rules over a case, a check a line."""
