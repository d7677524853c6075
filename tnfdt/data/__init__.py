"""Stage 1: datasets found, verified and prepared once; later stages open the prepared copy."""
