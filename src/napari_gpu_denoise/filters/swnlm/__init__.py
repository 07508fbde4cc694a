"""NL-means with the Shapiro-Wilk similarity."""
