"""Whether a request is taken, judged once, from its head: key, quota, deadline, load and memory."""
