"""What the stack was told against what stands: one module for each kind of resource."""
