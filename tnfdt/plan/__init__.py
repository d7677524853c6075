"""What a study will cost, before an hour is spent, and what it can show for that."""
