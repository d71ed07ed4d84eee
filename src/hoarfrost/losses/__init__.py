"""The loss functions, and the terms that methods are made of."""
