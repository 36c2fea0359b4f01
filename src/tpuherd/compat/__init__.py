"""Programs written for other tools run here with one changed import."""
