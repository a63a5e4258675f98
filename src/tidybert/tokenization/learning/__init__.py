"""Vocabularies learned from text, extended, and measured."""
