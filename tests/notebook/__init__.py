"""A cluster in a notebook, up to JupyterLab in a browser."""
