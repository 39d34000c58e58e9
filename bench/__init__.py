"""The published figures, each with the programs it is compared with: ``python -m bench NAME --peer``."""
