"""RESULTS.md, the tables of the documentation and its figures, from the results that are kept."""
