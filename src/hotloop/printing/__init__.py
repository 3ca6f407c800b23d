"""What training prints and saves itself, by the standard library alone; the command line shows the same blocks of a session."""
