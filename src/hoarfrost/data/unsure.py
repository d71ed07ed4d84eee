"""Images of no class: what they are called, and when an image is one of them."""

UNSURE = "unsure"
"""also the folder that ``hoarfrost sort`` puts them in"""
UNSURE_BELOW = 0.5
"""the probability of the best class below which an image is unsure, unless somebody says another"""
