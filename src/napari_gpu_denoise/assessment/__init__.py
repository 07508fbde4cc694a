"""How good a result is, told from the noisy image alone: error, detail kept, residual, sigma."""
