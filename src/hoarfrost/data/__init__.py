"""Images: reading them, changing them, and handing them out in batches."""
