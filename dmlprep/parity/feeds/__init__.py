"""Feeds (inputs of one run, arrays by name): from files, pictures, sound or text, or generated from a seed."""
