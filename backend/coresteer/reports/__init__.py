"""Reports: what was found, as one model, drawn as HTML and PDF and told as CSV and JSON."""
