"""Folders of networks that go on learning: how many classes there are, and which images are known; without torch."""
