"""From probe recordings to paths and a verdict, beside everything else."""
