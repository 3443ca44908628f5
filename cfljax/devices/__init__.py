"""Which devices there are, and what each of them does: meshes, processes, cores, and how jobs and
samples are dealt to them."""
