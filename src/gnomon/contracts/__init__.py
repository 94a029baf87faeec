"""All seams of Gnomon: protocols and the values that cross them. No implementation."""
