"""The references of a measured bus bandwidth: published measurements, link rates, and the verdict that follows."""
