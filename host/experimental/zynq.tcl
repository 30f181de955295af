
# From here on the script is the same for every configuration.

if {[llength $argv] < 1 || [llength $argv] > 3} {
    error "usage: vivado -mode batch -source [info script] -tclargs PART \[BOARD_PART|-\] \[MHZ\]"
}
set part [lindex $argv 0]
set board_part [expr {[llength $argv] > 1 ? [lindex $argv 1] : "-"}]
set mhz [expr {[llength $argv] > 2 ? [lindex $argv 2] : 100}]
if {![string is double -strict $mhz] || $mhz <= 0} {
    error "MHZ must be a positive number, not $mhz"
}

# What the two families call the same: the processor, its ports, its clock, reset and interrupt.
switch -glob $part {
    xc7z* {
        set processor processing_system7
        set settings [list \
            CONFIG.PCW_USE_M_AXI_GP0 1 \
            CONFIG.PCW_USE_S_AXI_HP0 1 \
            CONFIG.PCW_S_AXI_HP0_DATA_WIDTH 64 \
            CONFIG.PCW_USE_FABRIC_INTERRUPT 1 \
            CONFIG.PCW_IRQ_F2P_INTR 1 \
            CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $mhz]
        set automation {make_external "FIXED_IO, DDR"}
        set to_registers M_AXI_GP0
        set to_memory S_AXI_HP0
        set port_clocks {M_AXI_GP0_ACLK S_AXI_HP0_ACLK}
        set clock FCLK_CLK0
        set reset FCLK_RESET0_N
        set interrupts IRQ_F2P
    }
    xczu* - xck* {
        set processor zynq_ultra_ps_e
        set settings [list \
            CONFIG.PSU__USE__M_AXI_GP0 1 \
            CONFIG.PSU__USE__M_AXI_GP1 0 \
            CONFIG.PSU__USE__M_AXI_GP2 0 \
            CONFIG.PSU__USE__S_AXI_GP2 1 \
            CONFIG.PSU__SAXIGP2__DATA_WIDTH 128 \
            CONFIG.PSU__USE__IRQ0 1 \
            CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $mhz]
        set automation {}
        set to_registers M_AXI_HPM0_FPD
        set to_memory S_AXI_HP0_FPD
        set port_clocks {maxihpm0_fpd_aclk saxihp0_fpd_aclk}
        set clock pl_clk0
        set reset pl_resetn0
        set interrupts pl_ps_irq0
    }
    default {
        error "PART must be of a Zynq-7000 (xc7z...) or a Zynq UltraScale+ (xczu..., xck...), not $part"
    }
}

# The newest of an IP that this Vivado has.
proc newest {name} {
    set found [lsort -dictionary [get_ipdefs -all -filter "NAME == $name"]]
    if {![llength $found]} {
        error "this Vivado must have the IP $name, and has not; install the family of the part"
    }
    return [lindex $found end]
}

set folder [file dirname [file normalize [info script]]]
create_project $module [file join $folder ${module}_project] -part $part
if {$board_part ne "-"} {
    set_property board_part $board_part [current_project]
}
add_files -norecurse [file join $folder $verilog]
update_compile_order -fileset sources_1

create_bd_design system
create_bd_cell -type ip -vlnv [newest $processor] processor
if {$board_part ne "-"} {
    lappend automation apply_board_preset 1
}
if {[llength $automation]} {
    apply_bd_automation -rule xilinx.com:bd_rule:$processor -config $automation [get_bd_cells processor]
}
# After the board's own settings, which they change.
set_property -dict $settings [get_bd_cells processor]

create_bd_cell -type module -reference $module core
create_bd_cell -type ip -vlnv [newest proc_sys_reset] resets
create_bd_cell -type ip -vlnv [newest smartconnect] registers
set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [get_bd_cells registers]
create_bd_cell -type ip -vlnv [newest smartconnect] memory
set_property -dict [list CONFIG.NUM_SI [llength $masters] CONFIG.NUM_MI 1] [get_bd_cells memory]

proc join_buses {from to} {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}
proc join_pins {from args} {
    foreach to $args {
        connect_bd_net [get_bd_pins $from] [get_bd_pins $to]
    }
}

join_buses processor/$to_registers registers/S00_AXI
join_buses registers/M00_AXI core/$slave
set number 0
foreach master $masters {
    join_buses core/$master memory/[format S%02d_AXI $number]
    incr number
}
join_buses memory/M00_AXI processor/$to_memory

join_pins processor/$clock core/$core_clock resets/slowest_sync_clk registers/aclk memory/aclk
foreach port_clock $port_clocks {
    join_pins processor/$clock processor/$port_clock
}
join_pins processor/$reset resets/ext_reset_in
join_pins resets/peripheral_aresetn core/$core_reset registers/aresetn memory/aresetn
join_pins core/$core_interrupt processor/$interrupts

assign_bd_address
validate_bd_design
save_bd_design
set design [get_files system.bd]
add_files -norecurse [make_wrapper -files $design -top]
set_property top system_wrapper [current_fileset]

# What the device tree needs to know.
foreach segment [get_bd_addr_segs -of_objects [get_bd_addr_spaces processor/*]] {
    puts "$segment: [get_property OFFSET $segment], [get_property RANGE $segment] bytes"
}

launch_runs impl_1 -to_step write_bitstream
wait_on_run impl_1
if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} {
    error "the bitstream must be built, and is not; see the log of the run impl_1"
}
write_hw_platform -fixed -include_bit -force -file [file join $folder $module.xsa]
