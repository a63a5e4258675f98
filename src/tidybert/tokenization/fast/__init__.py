"""The fast path from many texts to ids: NumPy arrays over thousands of chunks at a time."""
