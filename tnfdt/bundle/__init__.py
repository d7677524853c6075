"""The evidence bundle: a study in one small file, packed, rebuilt from, merged."""
