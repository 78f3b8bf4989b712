"""The Loader class and its parts: open a plan, count received elements, and save and restore the state."""
