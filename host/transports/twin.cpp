// A board's top with its serial pins in a shared library: a clock, and an adapter that puts bytes on one pin and takes them off the other.
//
// The adapter is a UART of its own: it knows its own rate, and nothing of the design's.

#include "Vcore.h"
#include "design.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

namespace {

// What the assertion that broke first says: the model's functions know no simulator.
thread_local std::string broken_assertion;

constexpr unsigned kResetCycles = 16;
// Of a byte on the line: start bit, data from the lowest bit on, stop bit.
constexpr unsigned kDataBits = 8, kFrameBits = kDataBits + 2;
// Times are in parts of a cycle, so that any rate can be told.
constexpr uint64_t kParts = 1 << 16;

// Puts bytes on a pin.
class Sender {
  public:
    // Each byte keeps the rate at which it was handed over.
    void add(const uint8_t* data, uint64_t size, uint64_t bit_time) {
        for (uint64_t i = 0; i < size; ++i) bytes_.push_back({data[i], bit_time});
    }
    bool idle() const { return bytes_.empty() && !bits_; }

    // The pin's level in the next cycle.
    bool next() {
        if (left_ >= kParts) {
            left_ -= kParts;
            return level_;
        }
        if (!bits_) {
            if (bytes_.empty()) {
                left_ = 0;
                return level_ = true;
            }
            frame_ = unsigned(bytes_.front().value) << 1 | 1u << (kFrameBits - 1);
            bit_time_ = bytes_.front().bit_time;
            bytes_.pop_front();
            bits_ = kFrameBits;
        }
        level_ = frame_ & 1;
        frame_ >>= 1;
        --bits_;
        left_ += bit_time_ - kParts;
        return level_;
    }

  private:
    struct Byte {
        uint8_t value;
        uint64_t bit_time;
    };
    std::deque<Byte> bytes_;
    unsigned frame_ = 0, bits_ = 0;
    uint64_t bit_time_ = 0, left_ = 0;
    bool level_ = true;
};

// Takes bytes off a pin: samples each bit in its middle, and drops what has no stop bit.
class Receiver {
  public:
    bool idle() const { return !bits_; }
    uint8_t byte() const { return uint8_t(frame_); }

    // The pin's level in this cycle; whether a byte has come.
    bool take(bool level, uint64_t bit_time) {
        if (!bits_) {
            // A new byte begins where the line falls: after a byte without a stop bit it has to rise first.
            if (before_ && !level) {
                bits_ = kFrameBits;
                left_ = bit_time / 2;
            }
            before_ = level;
            return false;
        }
        before_ = level;
        if (left_ >= kParts) {
            left_ -= kParts;
            return false;
        }
        left_ += bit_time - kParts;
        --bits_;
        if (bits_ == kFrameBits - 1 && level) bits_ = 0;  // a spike, no start bit
        else if (bits_ && bits_ < kFrameBits - 1) frame_ = frame_ >> 1 | unsigned(level) << (kDataBits - 1);
        else if (!bits_) return level;
        return false;
    }

  private:
    unsigned frame_ = 0, bits_ = 0;
    uint64_t left_ = 0;
    bool before_ = true;
};

#ifdef LUTTERFLY_SDRAM
// The chip beside the FPGA.
class Memory {
  public:
    void idle(Vcore& top) { top.sdram_data_in = 0; }
    void step(Vcore& top, std::string& broken) {
        const SdramPins pins = {
            bool(top.sdram_clock_enable), bool(top.sdram_select_n), bool(top.sdram_ras_n),
            bool(top.sdram_cas_n),        bool(top.sdram_we_n),     top.sdram_bank,
            top.sdram_address,            top.sdram_mask,           top.sdram_data_out,
            top.sdram_data_off,
        };
        top.sdram_data_in = chip_.step(pins);
        if (broken.empty() && !chip_.broken().empty()) broken = chip_.broken();
    }

  private:
    LUTTERFLY_SDRAM chip_{sdram_times()};
};
#else
// There is none.
class Memory {
  public:
    void idle(Vcore&) {}
    void step(Vcore&, std::string&) {}
};
#endif

class Board {
  public:
    Board() : top_(&context_) {
        top_.rx = 1;
        top_.rst = 1;
        sdram_.idle(top_);
        for (unsigned i = 0; i < kResetCycles; ++i) tick();
        top_.rst = 0;
        tick();
    }
    ~Board() {
        enter();
        top_.final();
    }

    void send(const uint8_t* data, uint64_t size, uint64_t bit_time) { sender_.add(data, size, bit_time); }

    // Cycles pass, until `size` bytes have come at most; how many have.
    uint64_t run(uint64_t cycles, uint64_t bit_time, uint8_t* data, uint64_t size) {
        enter();
        uint64_t count = 0;
        for (uint64_t i = 0; i < cycles && count < size && broken_.empty(); ++i) {
            top_.rx = sender_.next();
            tick();
            if (receiver_.take(top_.tx, bit_time)) data[count++] = receiver_.byte();
        }
        return count;
    }

    // Nothing is under way, neither on the pins nor in the accelerator.
    bool idle() const { return sender_.idle() && receiver_.idle() && !top_.busy; }
    uint64_t cycle() const { return cycle_; }
    const std::string& broken() const { return broken_; }

  private:
    // Verilator's runtime looks into the thread's context.
    void enter() { Verilated::threadContextp(&context_); }

    // Every change of the clock is a cycle.
    void tick() {
        ++cycle_;
        top_.clk = !top_.clk;
        top_.eval();
        sdram_.step(top_, broken_);
        if (!broken_assertion.empty()) {
            if (broken_.empty()) broken_ = broken_assertion;
            broken_assertion.clear();
        }
    }

    VerilatedContext context_;
    Vcore top_;
    Memory sdram_;
    Sender sender_;
    Receiver receiver_;
    uint64_t cycle_ = 0;
    std::string broken_;
};

}  // namespace

extern "C" {

void lutterfly_never(const char* message) {
    if (broken_assertion.empty()) broken_assertion = message;
}

Board* lutterfly_create() { return std::make_unique<Board>().release(); }
void lutterfly_destroy(Board* board) { delete board; }
void lutterfly_send(Board* board, const uint8_t* data, uint64_t size, uint64_t bit_time) { board->send(data, size, bit_time); }
uint64_t lutterfly_run(Board* board, uint64_t cycles, uint64_t bit_time, uint8_t* data, uint64_t size) {
    return board->run(cycles, bit_time, data, size);
}
int lutterfly_idle(Board* board) { return board->idle(); }
uint64_t lutterfly_cycle(Board* board) { return board->cycle(); }
const char* lutterfly_broken(Board* board) { return board->broken().c_str(); }

}  // extern "C"
