"""What the protocol generations (eras) answer differently."""
