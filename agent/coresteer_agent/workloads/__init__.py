"""Workloads of experiments: load generated on this machine only, bounded in time and count."""
