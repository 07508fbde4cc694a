"""Noise of magnitude and intensity images: Rician noise (MRI) and speckle (ultrasound)."""
