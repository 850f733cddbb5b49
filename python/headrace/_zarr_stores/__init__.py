"""Stores of zarr-python, Icechunk, obstore and fsspec as those of headrace, for `headrace.open`."""
