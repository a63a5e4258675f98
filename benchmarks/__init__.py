"""Measurements behind the tables of the guides: ``python -m benchmarks`` lists them."""
