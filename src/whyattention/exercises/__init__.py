"""Checks that a reader calls on an answer: they print "Correct: ..." or raise AssertionError with a hint."""
