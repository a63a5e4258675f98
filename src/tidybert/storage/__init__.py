"""Files on disk: locked, opened with limits, and written whole or not at all."""
