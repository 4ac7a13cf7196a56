"""Experiments that make their own load, on this machine only, bounded in time and count."""
