"""What only those who maintain hoarfrost run; it is not installed."""
