"""Ways into other systems that are not proved to their end: FuseSoC, Vivado, LiteX, Linux's UIO; docs/experimental.md
says what was proved of each."""
