"""The book on paper: a PDF set by Typst, and an EPUB; both from the staged folder that the HTML pages are made of."""
