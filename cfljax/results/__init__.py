"""What a results folder says, as frames and text."""
