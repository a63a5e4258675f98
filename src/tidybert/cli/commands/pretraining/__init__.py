"""Commands for who makes a model: a vocabulary, a corpus, a pre-training; light to import."""
