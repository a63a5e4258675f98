"""A RUN on disk: its record, its checkpoints, and what must be equal for a resume."""
