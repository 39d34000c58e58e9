"""The tests of wirespeed; the folders mirror ``src/wirespeed``."""
