"""The reference agent under crashes: payments and its variations."""
