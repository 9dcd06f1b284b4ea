"""Commands that publish and subscribe: `pub` and `sub`."""
