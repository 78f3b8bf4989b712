"""The Loader and its parts: opening a plan, counting received elements, and saving and restoring state."""
