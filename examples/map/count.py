"""Counts the primes below a number, and prints the result."""

import sys


def count_primes(below: int) -> int:
    """Return how many primes are less than `below`."""
    is_prime = bytearray([1]) * below
    is_prime[:2] = bytes(min(2, below))
    for number in range(2, int(below**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(is_prime)


if __name__ == "__main__":
    print(f"{sys.argv[1]}: {count_primes(int(sys.argv[1]))} primes")
