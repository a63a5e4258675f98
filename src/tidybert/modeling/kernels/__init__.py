"""Fast bodies of the model's functions; a test holds each equal to a plain one."""
