"""What a training script may import: Python 3.10 and newer. Nothing of it is built yet."""
