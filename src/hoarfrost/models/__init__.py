"""Backbones and the heads on them."""
