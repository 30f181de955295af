"""The simulated accelerator: from generated Verilog to a library that the driver uses."""
