"""What designs filters: the queue, the thread that works it off, the models resident in memory."""
