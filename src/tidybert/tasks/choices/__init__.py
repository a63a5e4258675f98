"""choose: questions with choices, from their files to their answers."""
