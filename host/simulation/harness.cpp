// The simulated accelerator in a shared library: clock, AXI memory, register access, trace and feature memories behind a plain C interface.
//
// `design.h` is written by host/simulation/build.py for each configuration: the widths, the ports and cores, and where the feature memories'
// banks are in the model.

#include "Vcore.h"
#include "Vcore___024root.h"
#include "axi_memory.h"
#include "design.h"

#include <memory>

using namespace lutterfly;

#define CONTROL(name) LUTTERFLY_CONTROL(name)
// Verilator puts SYM before what is a word of some compilers.
#define INTERRUPT top_.__SYM__interrupt

namespace {

// What the assertion that broke first says: the model's functions know no simulator.
thread_local std::string broken_assertion;

// Cycles in which the core must answer on its register port, and cycles of a hard reset.
constexpr unsigned kRegisterCycles = 10000, kResetCycles = 16;

enum class Outcome : int { kLimit = 0, kInterrupt = 1, kComputeDone = 2, kViolation = 3 };
enum class Access : int { kDone = 0, kTimeout = 1, kRefused = 2, kViolation = 3 };

// Mirrored by host/simulation/simulator.py, as is the order of the kinds. The interrupt is of no core: it has the number 0.
struct Event {
    uint64_t cycle;
    uint64_t kind;
    uint64_t core;
};
enum Kind : unsigned { kIssueFirst, kIssueLast, kComputeDoneEvent, kDmaBegin, kDmaDone, kInterruptEvent };

// What the register port's master drives.
struct ControlWires {
    bool awvalid = false, wvalid = false, bready = false, arvalid = false, rready = false;
    uint32_t awaddr = 0, wdata = 0, araddr = 0;
};

class Simulator {
  public:
    Simulator(uint64_t base, uint64_t size) : top_(&context_), storage_(base, size) {
        for (unsigned i = 0; i < LUTTERFLY_PORTS; ++i) ports_.emplace_back(storage_, LUTTERFLY_DATA_BYTES);
        reset();
    }
    ~Simulator() {
        enter();
        top_.final();
    }

    // Verilator's runtime looks into the thread's context, which is that of the simulator that was made last, in whatever thread.
    void enter() { Verilated::threadContextp(&context_); }

    Storage& storage() { return storage_; }
    const std::string& broken() const { return broken_; }
    // Of the first port that has one.
    const std::string& violation() const {
        for (const AxiMemory& port : ports_)
            if (!port.violation().empty()) return port.violation();
        return ports_.front().violation();
    }
    std::vector<Event>& events() { return events_; }
    uint64_t cycle() const { return cycle_; }

    // One port, or all of them, each with other stalls.
    void configure(const Settings& settings, int port) {
        for (int i = 0; i < int(ports_.size()); ++i) {
            Settings own = settings;
            own.seed += unsigned(i);
            if (port < 0 || port == i) ports_[unsigned(i)].configure(own);
        }
        stall_ = settings.stall_probability;
        random_ = Random(settings.seed + 0x9e3779b9u);
    }

    void reset() {
        enter();
        LUTTERFLY_RESET_N = 0;
        for (unsigned i = 0; i < kResetCycles; ++i) tick();
        LUTTERFLY_RESET_N = 1;
        tick();
    }

    // `compute_done` has a number for each core: 0 for never.
    Outcome run(uint64_t cycles, bool until_interrupt, const uint64_t* compute_done) {
        enter();
        for (uint64_t i = 0; i < cycles; ++i) {
            if (computed(compute_done)) return Outcome::kComputeDone;
            if (until_interrupt && INTERRUPT) return Outcome::kInterrupt;
            tick();
            if (violated()) return Outcome::kViolation;
        }
        if (computed(compute_done)) return Outcome::kComputeDone;
        return until_interrupt && INTERRUPT ? Outcome::kInterrupt : Outcome::kLimit;
    }

    Access write_register(uint32_t address, uint32_t value) {
        enter();
        ControlWires next;
        bool address_sent = false, data_sent = false;
        for (unsigned i = 0; i < kRegisterCycles; ++i) {
            if (control_.awvalid && CONTROL(awready)) next.awvalid = false;
            if (control_.wvalid && CONTROL(wready)) next.wvalid = false;
            const bool done = control_.bready && CONTROL(bvalid);
            const unsigned response = CONTROL(bresp);
            if (done) return finish(response);
            // Each channel begins when it likes, and what it offers stays until it is taken.
            if (!address_sent && !random_.chance(stall_)) {
                address_sent = next.awvalid = true;
                next.awaddr = address;
            }
            if (!data_sent && !random_.chance(stall_)) {
                data_sent = next.wvalid = true;
                next.wdata = value;
            }
            next.bready = !random_.chance(stall_);
            tick(next);
        }
        return quit();
    }

    Access read_register(uint32_t address, uint32_t* value) {
        enter();
        ControlWires next;
        bool address_sent = false;
        for (unsigned i = 0; i < kRegisterCycles; ++i) {
            if (control_.arvalid && CONTROL(arready)) next.arvalid = false;
            const bool done = control_.rready && CONTROL(rvalid);
            const unsigned response = CONTROL(rresp);
            if (done) *value = CONTROL(rdata);
            if (done) return finish(response);
            if (!address_sent && !random_.chance(stall_)) {
                address_sent = next.arvalid = true;
                next.araddr = address;
            }
            next.rready = !random_.chance(stall_);
            tick(next);
        }
        return quit();
    }

    // Addresses wrap, as in the core.
    void read_feature(unsigned core, uint64_t address, uint64_t size, uint8_t* out) {
        switch (core) {
#define READ(number, trace, even, odd) \
    case number: \
        return read_banks(top_.rootp->even, top_.rootp->odd, address, size, out);
            LUTTERFLY_EACH_CORE(READ)
#undef READ
        }
    }

    uint64_t compute_done(unsigned core) const { return compute_done_[core]; }

    void clear_events() {
        events_.clear();
        std::fill(std::begin(compute_done_), std::end(compute_done_), 0);
    }

  private:
    // The outputs are those of this cycle. What passes at its end is known from them and from what was driven; then come the
    // edge and the inputs of the next cycle, see host/simulation/wrapper.py.
    void tick(const ControlWires& next = {}) {
        if (LUTTERFLY_RESET_N) {
#define SAMPLE(number, pin) ports_[number].sample(cycle_, MASTER_WIRES(pin));
#define MASTER_WIRES(pin) \
    master_wires( \
        {bool(pin(arvalid)), pin(araddr), pin(arid), pin(arlen), pin(arsize), pin(arburst)}, \
        {bool(pin(awvalid)), pin(awaddr), pin(awid), pin(awlen), pin(awsize), pin(awburst)}, \
        {bool(pin(wvalid)), bool(pin(wlast)), pin(wstrb), {}}, &pin(wdata), pin(rready), pin(bready))
            LUTTERFLY_EACH_PORT(SAMPLE)
#undef MASTER_WIRES
#undef SAMPLE
#define RECORD(number, trace, even, odd) \
    record(trace(compute_issue_first), kIssueFirst, number); \
    record(trace(compute_issue_last), kIssueLast, number); \
    record(trace(compute_done), kComputeDoneEvent, number); \
    record(trace(dma_begin), kDmaBegin, number); \
    record(trace(dma_done), kDmaDone, number); \
    compute_done_[number] += trace(compute_done);
            LUTTERFLY_EACH_CORE(RECORD)
#undef RECORD
            record(INTERRUPT && !interrupt_, kInterruptEvent, 0);
            interrupt_ = INTERRUPT;
        }
        ++cycle_;
        drive_memory();
        drive_control(next);
        LUTTERFLY_CLOCK = !LUTTERFLY_CLOCK;
        top_.eval();
        if (!broken_assertion.empty()) {
            if (broken_.empty()) broken_ = broken_assertion;
            broken_assertion.clear();
        }
    }

    bool violated() const { return !violation().empty() || !broken_.empty(); }

    bool computed(const uint64_t* compute_done) const {
        for (unsigned core = 0; core < LUTTERFLY_CORES; ++core)
            if (compute_done[core] && compute_done_[core] >= compute_done[core]) return true;
        return false;
    }

    template <typename Bank>
    static void read_banks(const Bank& even, const Bank& odd, uint64_t address, uint64_t size, uint8_t* out) {
        constexpr uint64_t kLanes = LUTTERFLY_LANES;
        for (uint64_t i = 0; i < size;) {
            const uint64_t at = (address + i) % LUTTERFLY_FEATURE_BYTES, word = at / kLanes, offset = at % kLanes;
            const uint64_t count = std::min(size - i, kLanes - offset);
            const auto& bank = word % 2 ? odd : even;
            std::memcpy(out + i, reinterpret_cast<const uint8_t*>(&bank[word / 2]) + offset, count);
            i += count;
        }
    }

    static MasterWires master_wires(const Address& read, const Address& write, WriteBeat beat, const void* data, bool read_ready, bool response_ready) {
        if (beat.valid) std::memcpy(beat.data, data, LUTTERFLY_DATA_BYTES);
        return {read, write, beat, read_ready, response_ready};
    }

    void drive_memory() {
#define DRIVE(number, pin) \
    { \
        ports_[number].drive(cycle_); \
        const SlaveWires& slave = ports_[number].wires(); \
        pin(arready) = slave.read_address_ready; \
        pin(awready) = slave.write_address_ready; \
        pin(wready) = slave.beat_ready; \
        pin(rvalid) = slave.read_valid; \
        pin(bvalid) = slave.response_valid; \
        if (slave.read_valid) { \
            pin(rid) = slave.read_id; \
            pin(rresp) = slave.read_response; \
            pin(rlast) = slave.read_last; \
            std::memcpy(&pin(rdata), slave.read_data, LUTTERFLY_DATA_BYTES); \
        } \
        if (slave.response_valid) { \
            pin(bid) = slave.response_id; \
            pin(bresp) = slave.response; \
        } \
    }
        LUTTERFLY_EACH_PORT(DRIVE)
#undef DRIVE
    }

    void drive_control(const ControlWires& next) {
        control_ = next;
        CONTROL(awvalid) = next.awvalid;
        CONTROL(awaddr) = next.awaddr;
        CONTROL(wvalid) = next.wvalid;
        CONTROL(wdata) = next.wdata;
        CONTROL(wstrb) = 0xf;
        CONTROL(bready) = next.bready;
        CONTROL(arvalid) = next.arvalid;
        CONTROL(araddr) = next.araddr;
        CONTROL(rready) = next.rready;
    }

    void record(bool happens, Kind kind, unsigned core) {
        if (happens) events_.push_back({cycle_, kind, core});
    }

    // The response passes at the end of this cycle.
    Access finish(unsigned response) {
        tick();
        if (violated()) return Access::kViolation;
        return response == kResponseOkay ? Access::kDone : Access::kRefused;
    }

    Access quit() {
        tick();
        return Access::kTimeout;
    }

    VerilatedContext context_;
    Vcore top_;
    Storage storage_;
    std::deque<AxiMemory> ports_;
    ControlWires control_;
    std::vector<Event> events_;
    std::string broken_;
    Random random_{0};
    double stall_ = 0;
    uint64_t cycle_ = 0, compute_done_[LUTTERFLY_CORES] = {};
    bool interrupt_ = false;
};

}  // namespace

extern "C" {

void lutterfly_never(const char* message) {
    if (broken_assertion.empty()) broken_assertion = message;
}

// Null if there is no room for the memory.
Simulator* lutterfly_create(uint64_t base, uint64_t size) {
    auto simulator = std::make_unique<Simulator>(base, size);
    return simulator->storage().bytes() ? simulator.release() : nullptr;
}
void lutterfly_destroy(Simulator* simulator) { delete simulator; }
void lutterfly_configure(Simulator* simulator, const Settings* settings, int port) { simulator->configure(*settings, port); }
void lutterfly_add_fault(Simulator* simulator, uint64_t start, uint64_t end, uint32_t response) {
    simulator->storage().add_fault(start, end, response);
}
void lutterfly_clear_faults(Simulator* simulator) { simulator->storage().clear_faults(); }
void lutterfly_reset(Simulator* simulator) { simulator->reset(); }
uint8_t* lutterfly_arena(Simulator* simulator) { return simulator->storage().bytes(); }
uint64_t lutterfly_cycle(Simulator* simulator) { return simulator->cycle(); }
const char* lutterfly_violation(Simulator* simulator) { return simulator->violation().c_str(); }
const char* lutterfly_broken(Simulator* simulator) { return simulator->broken().c_str(); }
int lutterfly_run(Simulator* simulator, uint64_t cycles, int until_interrupt, const uint64_t* compute_done) {
    return int(simulator->run(cycles, until_interrupt, compute_done));
}
int lutterfly_read_register(Simulator* simulator, uint32_t address, uint32_t* value) {
    return int(simulator->read_register(address, value));
}
int lutterfly_write_register(Simulator* simulator, uint32_t address, uint32_t value) {
    return int(simulator->write_register(address, value));
}
void lutterfly_read_feature(Simulator* simulator, unsigned core, uint64_t address, uint64_t size, uint8_t* out) {
    simulator->read_feature(core, address, size, out);
}
uint64_t lutterfly_compute_done(Simulator* simulator, unsigned core) { return simulator->compute_done(core); }
uint64_t lutterfly_event_count(Simulator* simulator) { return simulator->events().size(); }
const Event* lutterfly_events(Simulator* simulator) { return simulator->events().data(); }
void lutterfly_clear_events(Simulator* simulator) { simulator->clear_events(); }

}  // extern "C"
