// A PLL, without its frequencies: the oscillator's clock comes out as it is, and LOCK rises after some of its cycles.
//
// A cycle of the simulation is one of the clock that is used, whatever the oscillator has.
module EHXPLLL (
    input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG, PLLWAKESYNC, ENCLKOP,
    output CLKOP, CLKOS, LOCK
);
    parameter CLKI_DIV = 1, CLKFB_DIV = 1, FEEDBK_PATH = "CLKOP";
    parameter CLKOP_ENABLE = "ENABLED", CLKOP_DIV = 1, CLKOP_CPHASE = 0, CLKOP_FPHASE = 0;
    parameter CLKOS_ENABLE = "DISABLED", CLKOS_DIV = 1, CLKOS_CPHASE = 0, CLKOS_FPHASE = 0;
    parameter OUTDIVIDER_MUXA = "DIVA", OUTDIVIDER_MUXB = "DIVB", OUTDIVIDER_MUXC = "DIVC", OUTDIVIDER_MUXD = "DIVD";
    parameter PLLRST_ENA = "DISABLED", INTFB_WAKE = "DISABLED", STDBY_ENABLE = "DISABLED", DPHASE_SOURCE = "DISABLED";

    reg [3:0] cycles = 0;
    always @(posedge CLKI) if (!cycles[3]) cycles <= cycles + 1;
    assign LOCK = cycles[3];
    assign CLKOP = CLKI;
    assign CLKOS = CLKI;
endmodule
