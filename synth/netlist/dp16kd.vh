// A block RAM of the ECP5, as its user sees it at the edges of one clock.
//
// Source: Lattice FPGA-TN-02204 (memory usage guide): widths, byte enables at the lowest address pins, write modes, output register, and the
// words of INITVAL, 18 of each 20 bits. `cells.py` refuses what is not described: two clocks, resets, other chip selects, a port that reads
// wide but does not write wide. Bits that one port reads while the other writes them are undefined in the hardware; here they are the opposite
// of what is written. Bits of an output above its width mean nothing.
module DP16KD (
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0,
    input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
    input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0,
    input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
    input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
    input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
    output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
    parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
    parameter REGMODE_A = "NOREG", REGMODE_B = "NOREG";
    parameter WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL";
    parameter RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC", CSDECODE_A = "0b000", CSDECODE_B = "0b000";
    parameter CLKAMUX = "CLKA", CLKBMUX = "CLKB", GSR = "DISABLED";
    parameter [319:0]
        INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0, INITVAL_04 = 0, INITVAL_05 = 0, INITVAL_06 = 0, INITVAL_07 = 0,
        INITVAL_08 = 0, INITVAL_09 = 0, INITVAL_0A = 0, INITVAL_0B = 0, INITVAL_0C = 0, INITVAL_0D = 0, INITVAL_0E = 0, INITVAL_0F = 0,
        INITVAL_10 = 0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0, INITVAL_14 = 0, INITVAL_15 = 0, INITVAL_16 = 0, INITVAL_17 = 0,
        INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A = 0, INITVAL_1B = 0, INITVAL_1C = 0, INITVAL_1D = 0, INITVAL_1E = 0, INITVAL_1F = 0,
        INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 = 0, INITVAL_23 = 0, INITVAL_24 = 0, INITVAL_25 = 0, INITVAL_26 = 0, INITVAL_27 = 0,
        INITVAL_28 = 0, INITVAL_29 = 0, INITVAL_2A = 0, INITVAL_2B = 0, INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E = 0, INITVAL_2F = 0,
        INITVAL_30 = 0, INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0, INITVAL_34 = 0, INITVAL_35 = 0, INITVAL_36 = 0, INITVAL_37 = 0,
        INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A = 0, INITVAL_3B = 0, INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0, INITVAL_3F = 0;
    localparam [20479:0] INITIAL = {
        INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38,
        INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30,
        INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28,
        INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20,
        INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18,
        INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10,
        INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08,
        INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01, INITVAL_00};

    wire [13:0] ada = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
    wire [13:0] adb = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
    wire [17:0] dia = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
    wire [17:0] dib = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0};

    // The array is 512 rows of 36 bits: four bytes of 9. Widths below 9 leave the ninth bit of each byte out.
    reg [35:0] rows [0:511];
    integer index;
    initial
        for (index = 0; index < 512; index = index + 1)
            rows[index] = {INITIAL[40 * index + 20 +: 18], INITIAL[40 * index +: 18]};

    // The first bit that an address means, in its row, and the bits that a write there changes.
    function [5:0] first(input integer width, input [4:0] low);
        case (width)
            36: first = 0;
            18: first = 18 * low[4];
            9: first = 9 * low[4:3];
            4: first = 9 * low[4:3] + 4 * low[2];
            2: first = 9 * low[4:3] + 2 * low[2:1];
            default: first = 9 * low[4:3] + low[2:0];
        endcase
    endfunction
    function [35:0] changed(input integer width, input [4:0] low);
        case (width)
            36: changed = {{9{low[3]}}, {9{low[2]}}, {9{low[1]}}, {9{low[0]}}};
            18: changed = 36'({{9{low[1]}}, {9{low[0]}}}) << first(18, low);
            default: changed = ((36'd1 << width) - 1) << first(width, low);
        endcase
    endfunction

    wire [5:0] first_a = first(DATA_WIDTH_A, ada[4:0]), first_b = first(DATA_WIDTH_B, adb[4:0]);
    wire [35:0] changed_a = CEA && WEA ? changed(DATA_WIDTH_A, ada[4:0]) : 0;
    wire [35:0] changed_b = CEB && WEB ? changed(DATA_WIDTH_B, adb[4:0]) : 0;
    // Of a wide port both sides give data.
    wire [35:0] written_a = {DATA_WIDTH_A == 36 ? dib : 18'd0, dia} << first_a, written_b = 36'(dib) << first_b;
    wire is_same = ada[13:5] == adb[13:5];
    wire [35:0] row_a = rows[ada[13:5]], row_b = rows[adb[13:5]];
    wire [35:0] new_a = row_a & ~changed_a | written_a & changed_a;
    // What a port reads.
    wire [35:0] seen_a = is_same ? row_a & ~changed_b | ~written_b & changed_b : row_a;
    wire [35:0] seen_b = is_same ? row_b & ~changed_a | ~written_a & changed_a : row_b;
    reg [35:0] read_a = 0, read_b = 0, output_a = 0, output_b = 0;

    always @(posedge CLKA) begin
        // The second of two writes to a row has the first one's bits as well.
        if (CEA && WEA) rows[ada[13:5]] <= new_a;
        if (CEB && WEB) rows[adb[13:5]] <= (is_same ? new_a : row_b) & ~changed_b | written_b & changed_b;
        if (CEA && DATA_WIDTH_A != 36 && (!WEA || WRITEMODE_A == "READBEFOREWRITE")) read_a <= seen_a >> first_a;
        // Bytes that are not written stay as they were read.
        if (CEA && DATA_WIDTH_A != 36 && WEA && WRITEMODE_A == "WRITETHROUGH")
            read_a <= read_a & ~(changed_a >> first_a) | (written_a & changed_a) >> first_a;
        if (CEB && (!WEB || WRITEMODE_B == "READBEFOREWRITE")) read_b <= seen_b >> first_b;
        if (CEB && WEB && WRITEMODE_B == "WRITETHROUGH")
            read_b <= read_b & ~(changed_b >> first_b) | (written_b & changed_b) >> first_b;
        if (OCEA) output_a <= read_a;
        if (OCEB) output_b <= read_b;
    end

    wire [35:0] side_a = REGMODE_A == "OUTREG" ? output_a : read_a, side_b = REGMODE_B == "OUTREG" ? output_b : read_b;
    // A wide word is read by port B, and comes out of both sides, with the lower half at A.
    assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0} =
        DATA_WIDTH_B == 36 ? side_b[17:0] : side_a[17:0];
    assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0} =
        DATA_WIDTH_B == 36 ? side_b[35:18] : side_b[17:0];
endmodule
