"""What a loader is made of: how it is opened, what it has received, and what is saved of that."""
