"""Files of labelled texts: formats, rows, columns, and the examples they hold."""
