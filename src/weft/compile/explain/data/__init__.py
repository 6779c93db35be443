"""Files that the page of an explanation is made of."""
