collect_ignore = ["peers.py"]  # what it imports is in an environment of its own
