"""How figures show themselves: pieces of SVG for pages and notebooks, HTML tables, and tables of other libraries."""
