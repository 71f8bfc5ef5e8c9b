"""Tests in a real browser: JupyterLab, a live kernel, and the pixels a user sees."""
