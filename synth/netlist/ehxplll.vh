// A PLL, without its frequencies: the oscillator's clock comes out as it is, and LOCK rises after some of its cycles.
//
// A cycle of the simulation is one of the clock that is used, whatever the oscillator has; with a clock that is twice as fast, CLKOS2, it is one of
// that, and the one that is used has half of its edges.
module EHXPLLL (
    input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG, PLLWAKESYNC, ENCLKOP,
    output CLKOP, CLKOS, CLKOS2, LOCK
);
    parameter CLKI_DIV = 1, CLKFB_DIV = 1, FEEDBK_PATH = "CLKOP";
    parameter CLKOP_ENABLE = "ENABLED", CLKOP_DIV = 1, CLKOP_CPHASE = 0, CLKOP_FPHASE = 0;
    parameter CLKOS_ENABLE = "DISABLED", CLKOS_DIV = 1, CLKOS_CPHASE = 0, CLKOS_FPHASE = 0;
    parameter CLKOS2_ENABLE = "DISABLED", CLKOS2_DIV = 1, CLKOS2_CPHASE = 0, CLKOS2_FPHASE = 0;
    parameter OUTDIVIDER_MUXA = "DIVA", OUTDIVIDER_MUXB = "DIVB", OUTDIVIDER_MUXC = "DIVC", OUTDIVIDER_MUXD = "DIVD";
    parameter PLLRST_ENA = "DISABLED", INTFB_WAKE = "DISABLED", STDBY_ENABLE = "DISABLED", DPHASE_SOURCE = "DISABLED";

    reg [3:0] cycles = 0;
    always @(posedge CLKI) if (!cycles[3]) cycles <= cycles + 1;
    assign LOCK = cycles[3];

    // Registers for both, so that edges which are one event are one here.
    reg fast = 0, slow = 0;
    always @(posedge CLKI) begin
        fast <= ~fast;
        if (fast) slow <= ~slow;
    end
    wire used = CLKOS2_ENABLE == "ENABLED" ? slow : CLKI;
    assign CLKOP = used;
    assign CLKOS = used;
    assign CLKOS2 = fast;
endmodule
