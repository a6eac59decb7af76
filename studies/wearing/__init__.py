"""How many conditions a filter should be designed for, and whether they can be lent."""
