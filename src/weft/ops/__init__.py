"""The operators: one record each, and the public functions over them."""
