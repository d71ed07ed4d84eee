"""The published numbers, and the page that sets ours beside them."""
