"""How fast: a script for each kind of work, and the other side's code."""
