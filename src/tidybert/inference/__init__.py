"""Load once, batch, decode."""
