"""The machine: its devices, processes and precision, and how steps are compiled, captured and rounded on it."""
