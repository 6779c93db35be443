"""Programs: steps, buffer aliasing, memory layout, and what runs them."""
