"""The report of a run: one page of HTML that needs nothing else, for a person to read.

`svg` draws, `sections` says what each part of a run has to tell and chooses what is drawn, `page` puts it together.
"""
