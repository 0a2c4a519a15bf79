"""What a measured bus bandwidth is compared with: published measurements, link rates, and the verdict that follows."""
