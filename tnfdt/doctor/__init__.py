"""Whether this machine has what a study needs: `tnfdt doctor`."""
