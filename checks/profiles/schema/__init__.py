"""What may a profile say of each part of a cluster? One module for each of its sections; strict records, no logic."""
