"""embed: an encoder trained so that its vectors are near where texts belong together."""
