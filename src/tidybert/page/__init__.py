"""What the page shows: a function a view, from a model and texts to plain values and Python code.

The server's page_routes.py asks them over HTTP; resources/page has what the browser runs.
"""
