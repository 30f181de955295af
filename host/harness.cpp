// The simulated core in a shared library: clock, AXI memory, register access, trace and feature memory behind a plain C interface.
//
// `design.h` is written by host/build.py for each configuration: the widths, and where the feature memory's banks are in the model.

#include "Vcore.h"
#include "Vcore___024root.h"
#include "axi_memory.h"
#include "design.h"

#include <memory>

using namespace lutterfly;

// Verilator spells two underscores in a name so, and puts SYM before what is a word of some compilers.
#define CONTROL(name) top_.control___05F##name
#define MEMORY(name) top_.memory___05F##name
#define TRACE(name) top_.trace___05F##name
#define INTERRUPT top_.__SYM__interrupt

namespace {

// Cycles in which the core must answer on its register port, and cycles of a hard reset.
constexpr unsigned kRegisterCycles = 10000, kResetCycles = 16;

enum class Outcome : int { kLimit = 0, kInterrupt = 1, kComputeDone = 2, kViolation = 3 };
enum class Access : int { kDone = 0, kTimeout = 1, kRefused = 2, kViolation = 3 };

// Mirrored by host/simulator.py, as is the order of the kinds.
struct Event {
    uint64_t cycle;
    uint64_t kind;
};
enum Kind : unsigned { kIssueFirst, kIssueLast, kComputeDoneEvent, kDmaBegin, kDmaDone };

class Simulator {
  public:
    Simulator(uint64_t base, uint64_t size) : top_(&context_), memory_(base, size, LUTTERFLY_DATA_BYTES) { reset(); }
    ~Simulator() {
        // The model's scopes are taken from the thread's context, which is another simulator's if one was made since.
        Verilated::threadContextp(&context_);
        top_.final();
    }

    AxiMemory& memory() { return memory_; }
    std::vector<Event>& events() { return events_; }
    uint64_t cycle() const { return cycle_; }

    void configure(const Settings& settings) {
        memory_.configure(settings);
        stall_ = settings.stall_probability;
        random_ = Random(settings.seed + 0x9e3779b9u);
    }

    void reset() {
        top_.rst = 1;
        for (unsigned i = 0; i < kResetCycles; ++i) tick();
        top_.rst = 0;
    }

    Outcome run(uint64_t cycles, bool until_interrupt, uint64_t compute_done) {
        for (uint64_t i = 0; i < cycles; ++i) {
            if (compute_done && compute_done_ >= compute_done) return Outcome::kComputeDone;
            if (until_interrupt && INTERRUPT) return Outcome::kInterrupt;
            tick();
            if (!memory_.violation().empty()) return Outcome::kViolation;
        }
        if (compute_done && compute_done_ >= compute_done) return Outcome::kComputeDone;
        return until_interrupt && INTERRUPT ? Outcome::kInterrupt : Outcome::kLimit;
    }

    Access write_register(uint32_t address, uint32_t value) {
        bool address_done = false, data_done = false, response_done = false;
        for (unsigned i = 0; i < kRegisterCycles && !response_done; ++i) {
            // Each channel begins when it likes, and what it offers stays until it is taken.
            if (!address_done && !CONTROL(awvalid) && !random_.chance(stall_)) {
                CONTROL(awvalid) = 1;
                CONTROL(awaddr) = address;
            }
            if (!data_done && !CONTROL(wvalid) && !random_.chance(stall_)) {
                CONTROL(wvalid) = 1;
                CONTROL(wdata) = value;
                CONTROL(wstrb) = 0xf;
            }
            CONTROL(bready) = !random_.chance(stall_);
            settle();
            const bool takes_address = CONTROL(awvalid) && CONTROL(awready);
            const bool takes_data = CONTROL(wvalid) && CONTROL(wready);
            response_done = CONTROL(bvalid) && CONTROL(bready);
            const unsigned response = CONTROL(bresp);
            edge();
            if (takes_address) CONTROL(awvalid) = 0, address_done = true;
            if (takes_data) CONTROL(wvalid) = 0, data_done = true;
            if (response_done) return finish(response);
        }
        return quit();
    }

    Access read_register(uint32_t address, uint32_t* value) {
        bool address_done = false;
        for (unsigned i = 0; i < kRegisterCycles; ++i) {
            if (!address_done && !CONTROL(arvalid) && !random_.chance(stall_)) {
                CONTROL(arvalid) = 1;
                CONTROL(araddr) = address;
            }
            CONTROL(rready) = !random_.chance(stall_);
            settle();
            const bool takes_address = CONTROL(arvalid) && CONTROL(arready);
            const bool done = CONTROL(rvalid) && CONTROL(rready);
            const unsigned response = CONTROL(rresp);
            if (done) *value = CONTROL(rdata);
            edge();
            if (takes_address) CONTROL(arvalid) = 0, address_done = true;
            if (done) return finish(response);
        }
        return quit();
    }

    // Addresses wrap, as in the core.
    void read_feature(uint64_t address, uint64_t size, uint8_t* out) {
        constexpr uint64_t kLanes = LUTTERFLY_LANES;
        auto& even = LUTTERFLY_FEATURE_EVEN(top_.rootp);
        auto& odd = LUTTERFLY_FEATURE_ODD(top_.rootp);
        for (uint64_t i = 0; i < size;) {
            const uint64_t at = (address + i) % LUTTERFLY_FEATURE_BYTES, word = at / kLanes, offset = at % kLanes;
            const uint64_t count = std::min(size - i, kLanes - offset);
            const auto& bank = word % 2 ? odd : even;
            std::memcpy(out + i, reinterpret_cast<const uint8_t*>(&bank[word / 2]) + offset, count);
            i += count;
        }
    }

    void clear_events() {
        events_.clear();
        compute_done_ = 0;
    }

  private:
    void tick() {
        settle();
        edge();
    }

    // The first half of a cycle: inputs change, logic settles, and what will pass at the edge is known.
    void settle() {
        memory_.drive(cycle_);
        const SlaveWires& slave = memory_.wires();
        MEMORY(arready) = slave.read_address_ready;
        MEMORY(awready) = slave.write_address_ready;
        MEMORY(wready) = slave.beat_ready;
        MEMORY(rvalid) = slave.read_valid;
        MEMORY(bvalid) = slave.response_valid;
        if (slave.read_valid) {
            MEMORY(rid) = slave.read_id;
            MEMORY(rresp) = slave.read_response;
            MEMORY(rlast) = slave.read_last;
            std::memcpy(&MEMORY(rdata), slave.read_data, LUTTERFLY_DATA_BYTES);
        }
        if (slave.response_valid) {
            MEMORY(bid) = slave.response_id;
            MEMORY(bresp) = slave.response;
        }
        top_.clk = 0;
        top_.eval();
    }

    void edge() {
        MasterWires master;
        if ((master.read.valid = MEMORY(arvalid)))
            master.read = {true, MEMORY(araddr), MEMORY(arid), MEMORY(arlen), MEMORY(arsize), MEMORY(arburst)};
        if ((master.write.valid = MEMORY(awvalid)))
            master.write = {true, MEMORY(awaddr), MEMORY(awid), MEMORY(awlen), MEMORY(awsize), MEMORY(awburst)};
        if ((master.beat.valid = MEMORY(wvalid))) {
            master.beat.last = MEMORY(wlast);
            master.beat.strobes = MEMORY(wstrb);
            std::memcpy(master.beat.data, &MEMORY(wdata), LUTTERFLY_DATA_BYTES);
        }
        master.read_ready = MEMORY(rready);
        master.response_ready = MEMORY(bready);
        // In a hard reset nothing passes.
        if (!top_.rst) {
            memory_.sample(cycle_, master);
            record(TRACE(compute_issue_first), kIssueFirst);
            record(TRACE(compute_issue_last), kIssueLast);
            record(TRACE(compute_done), kComputeDoneEvent);
            record(TRACE(dma_begin), kDmaBegin);
            record(TRACE(dma_done), kDmaDone);
            compute_done_ += TRACE(compute_done);
        }
        top_.clk = 1;
        top_.eval();
        ++cycle_;
    }

    void record(bool happens, Kind kind) {
        if (happens) events_.push_back({cycle_, kind});
    }

    Access finish(unsigned response) {
        CONTROL(bready) = CONTROL(rready) = 0;
        if (!memory_.violation().empty()) return Access::kViolation;
        return response == kResponseOkay ? Access::kDone : Access::kRefused;
    }

    Access quit() {
        CONTROL(awvalid) = CONTROL(wvalid) = CONTROL(bready) = 0;
        CONTROL(arvalid) = CONTROL(rready) = 0;
        return Access::kTimeout;
    }

    VerilatedContext context_;
    Vcore top_;
    AxiMemory memory_;
    std::vector<Event> events_;
    Random random_{0};
    double stall_ = 0;
    uint64_t cycle_ = 0, compute_done_ = 0;
};

}  // namespace

extern "C" {

Simulator* lutterfly_create(uint64_t base, uint64_t size) { return new Simulator(base, size); }
void lutterfly_destroy(Simulator* simulator) { delete simulator; }
void lutterfly_configure(Simulator* simulator, const Settings* settings) { simulator->configure(*settings); }
void lutterfly_add_fault(Simulator* simulator, uint64_t start, uint64_t end, uint32_t response) {
    simulator->memory().add_fault(start, end, response);
}
void lutterfly_clear_faults(Simulator* simulator) { simulator->memory().clear_faults(); }
void lutterfly_reset(Simulator* simulator) { simulator->reset(); }
uint8_t* lutterfly_arena(Simulator* simulator) { return simulator->memory().bytes(); }
uint64_t lutterfly_cycle(Simulator* simulator) { return simulator->cycle(); }
const char* lutterfly_violation(Simulator* simulator) { return simulator->memory().violation().c_str(); }
int lutterfly_run(Simulator* simulator, uint64_t cycles, int until_interrupt, uint64_t compute_done) {
    return int(simulator->run(cycles, until_interrupt, compute_done));
}
int lutterfly_read_register(Simulator* simulator, uint32_t address, uint32_t* value) {
    return int(simulator->read_register(address, value));
}
int lutterfly_write_register(Simulator* simulator, uint32_t address, uint32_t value) {
    return int(simulator->write_register(address, value));
}
void lutterfly_read_feature(Simulator* simulator, uint64_t address, uint64_t size, uint8_t* out) {
    simulator->read_feature(address, size, out);
}
uint64_t lutterfly_event_count(Simulator* simulator) { return simulator->events().size(); }
const Event* lutterfly_events(Simulator* simulator) { return simulator->events().data(); }
void lutterfly_clear_events(Simulator* simulator) { simulator->clear_events(); }

}  // extern "C"
