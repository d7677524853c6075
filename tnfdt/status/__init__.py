"""How far a study is and what keeps it from going on: `tnfdt status`."""
