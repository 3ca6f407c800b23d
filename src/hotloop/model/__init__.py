"""Plain data, and the arithmetic that defines it. Standard library only; everything above may use it."""
