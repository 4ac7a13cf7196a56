"""Where the HTTP API is: declared once, before the paths of all features."""

API = "/api/v1"
"""Prefix of the API's paths. docs/API.md says what may change below it.

Elsewhere are what agents use (/api/agent, /api/enrol, /ca.pem), whose protocol has its own versions, shared reports,
the probes and the metrics.
"""
FORMER_HEALTH = "/api/health"
"""Where pages of release 0.2.0, perhaps still open, learn that the backend has another version."""
