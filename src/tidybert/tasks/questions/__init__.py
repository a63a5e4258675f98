"""answer: questions on texts, from their files to their answers."""
