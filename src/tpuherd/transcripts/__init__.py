"""What a transcript keeps of the traffic with a cloud: shapes and known words, never names."""
