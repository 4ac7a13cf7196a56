"""Reports of experiments and changes: one model, written as HTML, PDF, CSV, JSON and Markdown."""
