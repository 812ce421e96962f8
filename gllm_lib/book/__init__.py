"""The book: its folder, the execution of its chapters, the pages made of them, and what a chapter must satisfy."""

INK = "#1b1c1e"  # in a drawing, stands for the page's text colour
PAPER = "#fdfcfa"  # stands for the page itself
