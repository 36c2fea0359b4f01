"""Models of how other tools keep a job running, each with the lines of source it follows."""
