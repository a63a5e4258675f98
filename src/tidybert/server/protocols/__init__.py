"""The routes: tidybert's own, those of the page, and other programs' protocols."""
