"""What is fast: each function has a plain body beside it, and a test that holds both equal."""
