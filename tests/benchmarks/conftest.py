collect_ignore_glob = ["*.py"]  # scripts, which measure and prove nothing
