"""The machine and the terminal: cores, signals, versions, what a terminal may show."""
