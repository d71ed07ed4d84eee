"""hoarfrost: learn classes from labelled images, then discover new ones without labels and without forgetting."""

__version__ = "0.1.0"
