"""How figures are shown outside pages: in notebooks, and as tables of other libraries. What is released shows itself through this."""
