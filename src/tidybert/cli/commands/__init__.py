"""One file a command, or a pair of commands that share their work; light to import."""
