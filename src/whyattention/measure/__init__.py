"""Instruments: what a program costs, how long it takes, what it keeps, where its gradient goes."""
