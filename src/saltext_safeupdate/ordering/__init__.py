"""Have the own packages change last: the only room that knows salt.state and salt.loader."""
