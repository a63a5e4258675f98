"""The shell's face: one file a command, light to import; what is heavy loads when it runs."""
