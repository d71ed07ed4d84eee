"""Figures, and the page that shows a run."""
