"""From labelled examples to a finished RUN on disk: once, with several seeds, or as a search."""
