"""The compiler: source-to-source passes from a user's function to an emitted module."""
