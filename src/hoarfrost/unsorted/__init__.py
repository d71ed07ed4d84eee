"""Folders that nobody has sorted: how many classes there are, and which images are of known ones; without torch."""
