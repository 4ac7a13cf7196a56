"""Reports: one model, written as HTML, PDF, CSV and JSON."""
