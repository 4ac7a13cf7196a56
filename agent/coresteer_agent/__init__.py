"""Everything that touches the machine: collectors, the one door for changes, and the link to the backend."""
