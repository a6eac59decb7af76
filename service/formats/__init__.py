"""Between bytes and plain values: JSON, the binary body, the Open Inference Protocol, the answers."""
