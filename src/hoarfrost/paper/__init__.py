"""The paper's tables and figures, as ``hoarfrost reproduce`` makes them, and its published numbers."""
