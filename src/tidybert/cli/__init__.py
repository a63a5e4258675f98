"""The shell's face: light to import; what is heavy loads when a command runs."""
