"""Whether a request is taken, judged once, from its head: key, deadline, load and memory."""
