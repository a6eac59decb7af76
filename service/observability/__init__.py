"""What an operator sees: metrics, traces, the log's form."""
