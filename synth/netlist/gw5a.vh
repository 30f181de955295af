// Blocks of the GW5A, as their users see them at the edges of one clock.
//
// Sources: Gowin UG300 (block RAM): widths, byte enables at the lowest address pins, write modes; UG303 (DSP): registers of factors, in the
// middle and at the output. `gowin.py` refuses what is not described: two clocks, resets, other block selects, output registers, contents.
// Bits that one port reads while the other writes them are undefined in the hardware; here they are the opposite of what is written.

// A distributed RAM of 16 words.
module RAM16SDP4 (input [3:0] DI, WAD, RAD, input WRE, CLK, output [3:0] DO);
    parameter [15:0] INIT_0 = 0, INIT_1 = 0, INIT_2 = 0, INIT_3 = 0;
    reg [3:0] words [0:15];
    integer index;
    initial
        for (index = 0; index < 16; index = index + 1)
            words[index] = {INIT_3[index], INIT_2[index], INIT_1[index], INIT_0[index]};
    always @(posedge CLK) if (WRE) words[WAD] <= DI;
    assign DO = words[RAD];
endmodule

// The array of 512 rows of four bytes of 9 bits, with two ports of 36 bits. Widths that are no multiple of 9 leave the ninth bits out.
module gw5a_rows (
    input clk, enable_a, enable_b, write_a, write_b,
    input [13:0] ada, adb,
    input [35:0] dia, dib,
    output [35:0] doa, dob
);
    parameter WIDTH_A = 36, WIDTH_B = 36, THROUGH_A = 0, THROUGH_B = 0;
    reg [35:0] rows [0:511];
    integer index;
    initial for (index = 0; index < 512; index = index + 1) rows[index] = 0;

    // The first bit that an address means, in its row, and the bits that a write there changes.
    function [5:0] first(input integer width, input [4:0] low);
        case (width)
            36, 32: first = 0;
            18, 16: first = 18 * low[4];
            9, 8: first = 9 * low[4:3];
            4: first = 9 * low[4:3] + 4 * low[2];
            2: first = 9 * low[4:3] + 2 * low[2:1];
            default: first = 9 * low[4:3] + low[2:0];
        endcase
    endfunction
    function [35:0] changed(input integer width, input [4:0] low);
        case (width)
            36, 32: changed = {{9{low[3]}}, {9{low[2]}}, {9{low[1]}}, {9{low[0]}}};
            18, 16: changed = 36'({{9{low[1]}}, {9{low[0]}}}) << first(18, low);
            default: changed = ((36'd1 << width) - 1) << first(width, low);
        endcase
    endfunction

    wire [5:0] first_a = first(WIDTH_A, ada[4:0]), first_b = first(WIDTH_B, adb[4:0]);
    wire [35:0] changed_a = enable_a && write_a ? changed(WIDTH_A, ada[4:0]) : 0;
    wire [35:0] changed_b = enable_b && write_b ? changed(WIDTH_B, adb[4:0]) : 0;
    wire [35:0] written_a = dia << first_a, written_b = dib << first_b;
    wire is_same = ada[13:5] == adb[13:5];
    wire [35:0] row_a = rows[ada[13:5]], row_b = rows[adb[13:5]];
    wire [35:0] new_a = row_a & ~changed_a | written_a & changed_a;
    wire [35:0] seen_a = is_same ? row_a & ~changed_b | ~written_b & changed_b : row_a;
    wire [35:0] seen_b = is_same ? row_b & ~changed_a | ~written_a & changed_a : row_b;
    reg [35:0] read_a = 0, read_b = 0;
    always @(posedge clk) begin
        // The second of two writes to a row has the first one's bits as well.
        if (enable_a && write_a) rows[ada[13:5]] <= new_a;
        if (enable_b && write_b) rows[adb[13:5]] <= (is_same ? new_a : row_b) & ~changed_b | written_b & changed_b;
        if (enable_a && !write_a) read_a <= seen_a >> first_a;
        if (enable_b && !write_b) read_b <= seen_b >> first_b;
        // Bytes that are not written stay as they were read.
        if (enable_a && write_a && THROUGH_A != 0) read_a <= read_a & ~(changed_a >> first_a) | (written_a & changed_a) >> first_a;
        if (enable_b && write_b && THROUGH_B != 0) read_b <= read_b & ~(changed_b >> first_b) | (written_b & changed_b) >> first_b;
    end
    assign doa = read_a, dob = read_b;
endmodule

// Port A writes, port B reads.
module SDPX9B (
    input CLKA, CEA, CLKB, CEB, OCE, RESET, input [13:0] ADA, ADB, input [35:0] DI, input [2:0] BLKSELA, BLKSELB, output [35:0] DO
);
    parameter BIT_WIDTH_0 = 36, BIT_WIDTH_1 = 36, READ_MODE = 0, RESET_MODE = "SYNC", BLK_SEL_0 = 0, BLK_SEL_1 = 0;
    gw5a_rows #(.WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1)) rows(
        .clk(CLKA), .enable_a(CEA), .enable_b(CEB), .write_a(1'b1), .write_b(1'b0), .ada(ADA), .adb(ADB), .dia(DI), .dib(36'd0),
        .doa(), .dob(DO));
endmodule

// The same without ninth bits.
module SDPB (
    input CLKA, CEA, CLKB, CEB, OCE, RESET, input [13:0] ADA, ADB, input [31:0] DI, input [2:0] BLKSELA, BLKSELB, output [31:0] DO
);
    parameter BIT_WIDTH_0 = 32, BIT_WIDTH_1 = 32, READ_MODE = 0, RESET_MODE = "SYNC", BLK_SEL_0 = 0, BLK_SEL_1 = 0;
    wire [35:0] found;
    gw5a_rows #(.WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1)) rows(
        .clk(CLKA), .enable_a(CEA), .enable_b(CEB), .write_a(1'b1), .write_b(1'b0), .ada(ADA), .adb(ADB),
        .dia({1'b0, DI[31:24], 1'b0, DI[23:16], 1'b0, DI[15:8], 1'b0, DI[7:0]}), .dib(36'd0), .doa(), .dob(found));
    assign DO = {found[34:27], found[25:18], found[16:9], found[7:0]};
endmodule

// Both ports read and write.
module DPX9B (
    input CLKA, CEA, CLKB, CEB, OCEA, OCEB, RESETA, RESETB, WREA, WREB, input [13:0] ADA, ADB, input [17:0] DIA, DIB,
    input [2:0] BLKSELA, BLKSELB, output [17:0] DOA, DOB
);
    parameter BIT_WIDTH_0 = 18, BIT_WIDTH_1 = 18, READ_MODE0 = 0, READ_MODE1 = 0, WRITE_MODE0 = 0, WRITE_MODE1 = 0;
    parameter RESET_MODE = "SYNC", BLK_SEL_0 = 0, BLK_SEL_1 = 0;
    wire [35:0] found_a, found_b;
    gw5a_rows #(.WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1), .THROUGH_A(WRITE_MODE0), .THROUGH_B(WRITE_MODE1)) rows(
        .clk(CLKA), .enable_a(CEA), .enable_b(CEB), .write_a(WREA), .write_b(WREB), .ada(ADA), .adb(ADB), .dia(36'(DIA)), .dib(36'(DIB)),
        .doa(found_a), .dob(found_b));
    assign DOA = found_a[17:0], DOB = found_b[17:0];
endmodule

// The same without ninth bits.
module DPB (
    input CLKA, CEA, CLKB, CEB, OCEA, OCEB, RESETA, RESETB, WREA, WREB, input [13:0] ADA, ADB, input [15:0] DIA, DIB,
    input [2:0] BLKSELA, BLKSELB, output [15:0] DOA, DOB
);
    parameter BIT_WIDTH_0 = 16, BIT_WIDTH_1 = 16, READ_MODE0 = 0, READ_MODE1 = 0, WRITE_MODE0 = 0, WRITE_MODE1 = 0;
    parameter RESET_MODE = "SYNC", BLK_SEL_0 = 0, BLK_SEL_1 = 0;
    wire [35:0] found_a, found_b;
    gw5a_rows #(.WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1), .THROUGH_A(WRITE_MODE0), .THROUGH_B(WRITE_MODE1)) rows(
        .clk(CLKA), .enable_a(CEA), .enable_b(CEB), .write_a(WREA), .write_b(WREB), .ada(ADA), .adb(ADB),
        .dia(36'({1'b0, DIA[15:8], 1'b0, DIA[7:0]})), .dib(36'({1'b0, DIB[15:8], 1'b0, DIB[7:0]})), .doa(found_a), .dob(found_b));
    assign DOA = {found_a[16:9], found_a[7:0]}, DOB = {found_b[16:9], found_b[7:0]};
endmodule

// Multipliers with all of their registers.
module MULT12X12 (input signed [11:0] A, B, input [1:0] CLK, CE, RESET, output [23:0] DOUT);
    parameter AREG_CLK = "BYPASS", BREG_CLK = "BYPASS", PREG_CLK = "BYPASS", OREG_CLK = "BYPASS";
    reg signed [11:0] a = 0, b = 0;
    reg signed [23:0] middle = 0, out = 0;
    always @(posedge CLK[0]) begin
        a <= A;
        b <= B;
        middle <= a * b;
        out <= middle;
    end
    assign DOUT = out;
endmodule

module MULT27X36 (
    input signed [26:0] A, input signed [35:0] B, input [25:0] D, input [1:0] CLK, CE, RESET, input PSEL, PADDSUB, output [62:0] DOUT
);
    parameter AREG_CLK = "BYPASS", BREG_CLK = "BYPASS", PREG_CLK = "BYPASS", OREG_CLK = "BYPASS";
    reg signed [26:0] a = 0;
    reg signed [35:0] b = 0;
    reg signed [62:0] middle = 0, out = 0;
    always @(posedge CLK[0]) begin
        a <= A;
        b <= B;
        middle <= a * b;
        out <= middle;
    end
    assign DOUT = out;
endmodule
