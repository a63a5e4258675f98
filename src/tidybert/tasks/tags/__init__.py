"""tag: sentences of words, from their files to their entities."""
