collect_ignore = ["good.py", "bad.py"]  # read by type checkers, never run
