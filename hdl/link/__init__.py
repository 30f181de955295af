"""The serial link in hardware: UART, COBS, CRC, and the bridge that carries out a host's requests."""
