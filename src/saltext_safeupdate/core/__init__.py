"""The code that decides and acts. Standard library only: it runs when Salt is what broke."""
