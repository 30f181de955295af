// A multiplier of the ECP5 with its registers.
//
// Source: Lattice FPGA-TN-02205 (sysDSP usage guide): registers of both factors and of their signs, in the middle and at the output, each with
// clock, enable and a synchronous reset. `cells.py` refuses what is not described: other clocks than CLK0, shifted factors, the factor C.
module MULT18X18D (
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK0, CE0, RST0,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
    output P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
);
    parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
    parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
    parameter REG_PIPELINE_CLK = "NONE", REG_PIPELINE_CE = "CE0", REG_PIPELINE_RST = "RST0";
    parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
    parameter CLK0_DIV = "ENABLED", GSR = "DISABLED", RESETMODE = "SYNC";

    // The sign bit is copied into a nineteenth one, or not.
    wire [18:0] a_in = {SIGNEDA & A17, A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
    wire [18:0] b_in = {SIGNEDB & B17, B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
    reg signed [18:0] a_kept = 0, b_kept = 0;
    reg [35:0] middle_kept = 0, output_kept = 0;
    wire signed [18:0] a = REG_INPUTA_CLK == "CLK0" ? a_kept : a_in, b = REG_INPUTB_CLK == "CLK0" ? b_kept : b_in;
    wire signed [37:0] product = a * b;
    wire [35:0] middle = REG_PIPELINE_CLK == "CLK0" ? middle_kept : product[35:0];
    wire [35:0] out = REG_OUTPUT_CLK == "CLK0" ? output_kept : middle;

    always @(posedge CLK0)
        if (RST0) {a_kept, b_kept, middle_kept, output_kept} <= 0;
        else if (CE0) begin
            a_kept <= a_in;
            b_kept <= b_in;
            middle_kept <= product[35:0];
            output_kept <= middle;
        end

    assign {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18} = out[35:18];
    assign {P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = out[17:0];
endmodule
