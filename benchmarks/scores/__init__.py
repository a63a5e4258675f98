"""How good: the scripts that make the tables of scores."""
