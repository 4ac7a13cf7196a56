"""Alerts: signals, and the hysteresis that decides when an alert of a rule begins and ends. Pure."""
