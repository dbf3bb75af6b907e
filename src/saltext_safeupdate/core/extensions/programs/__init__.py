"""
Programs for the minion's interpreter, old or new, which may have the standard library only.

Their text is passed with ``python -I -c``: that interpreter need not be able to read this place.
"""
