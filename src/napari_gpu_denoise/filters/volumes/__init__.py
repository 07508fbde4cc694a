"""What the filters of volumes share: the shape of cubes, and axes that make a volume."""
