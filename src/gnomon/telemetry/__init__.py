"""What the core tells about itself becomes log lines and metrics here."""
