"""Every head over HTTP: a queue that is fair among clients, batches by tokens, and the routes."""
