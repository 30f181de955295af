// An AXI4 memory for the simulated cores: settable latency, bandwidth, stalls and faults, and a check of the master's side of the protocol.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace lutterfly {

constexpr unsigned kMaximumDataBytes = 16;
// Bits of an identifier below the number of the core, where cores share a port.
constexpr unsigned kCoreShift = 4, kMaximumCores = 8;
constexpr unsigned kResponseOkay = 0, kResponseSlave = 2, kResponseDecode = 3;
// What a master reads where there is no memory or an error was asked for: never the right data by chance.
constexpr uint8_t kBadByte = 0xbd;

// Mirrored by host/simulation/simulator.py.
struct Settings {
    uint32_t read_latency;   // cycles from a read address to its first beat
    uint32_t write_latency;  // cycles from the last beat of a write to its response
    uint32_t beat_interval;  // cycles from beat to beat; 1 is full bandwidth
    uint32_t outstanding;    // bursts that are accepted and not finished, for reads and for writes
    uint32_t accept;         // 0: addresses are not accepted
    uint32_t answer;         // 0: neither read data nor write responses are given
    uint32_t hold;           // most cycles by which a core's read is late at random, while others are answered
    uint32_t seed;
    double stall_probability;  // in each cycle, on each channel
};

// One address of a burst.
struct Address {
    bool valid = false;
    uint32_t address = 0;
    uint8_t id = 0, length = 0, size = 0, burst = 0;

    bool same(const Address& other) const {
        return address == other.address && id == other.id && length == other.length && size == other.size && burst == other.burst;
    }
};

// One beat of write data.
struct WriteBeat {
    bool valid = false, last = false;
    uint32_t strobes = 0;
    uint8_t data[kMaximumDataBytes] = {};

    bool same(const WriteBeat& other) const {
        return last == other.last && strobes == other.strobes && !std::memcmp(data, other.data, sizeof data);
    }
};

// What the core drives, and what the memory drives.
struct MasterWires {
    Address read, write;
    WriteBeat beat;
    bool read_ready = false, response_ready = false;
};

struct SlaveWires {
    bool read_address_ready = false, write_address_ready = false, beat_ready = false;
    bool read_valid = false, read_last = false, response_valid = false;
    uint8_t read_id = 0, read_response = 0, response_id = 0, response = 0;
    uint8_t read_data[kMaximumDataBytes] = {};
};

// Random numbers, the same on every machine (Source: Vigna, xorshift64*).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}

    bool chance(double probability) {
        if (probability <= 0) return false;
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return unit() < probability;
    }

    // A whole number up to a limit, which it may be.
    uint32_t upto(uint32_t most) {
        if (!most) return 0;
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return uint32_t(unit() * (most + 1.0));
    }

  private:
    double unit() const { return double((state_ * 0x2545f4914f6cdd1dULL) >> 11) * 0x1p-53; }

    uint64_t state_;
};

// The bytes, and where they are out of order: what all ports share.
class Storage {
  public:
    Storage(uint64_t base, uint64_t size) : base_(base), size_(size), bytes_(static_cast<uint8_t*>(std::calloc(size, 1))) {}
    ~Storage() { std::free(bytes_); }
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    uint8_t* bytes() { return bytes_; }
    uint8_t* at(uint64_t address) { return bytes_ + (address - base_); }
    void add_fault(uint64_t start, uint64_t end, unsigned response) { faults_.push_back({start, end, response}); }
    void clear_faults() { faults_.clear(); }

    unsigned response_at(uint64_t address, unsigned size) const {
        for (const Fault& fault : faults_)
            if (address + size > fault.start && address < fault.end) return fault.response;
        return address >= base_ && address + size <= base_ + size_ ? kResponseOkay : kResponseDecode;
    }

  private:
    struct Fault {
        uint64_t start, end;
        unsigned response;
    };

    uint64_t base_, size_;
    uint8_t* bytes_;
    std::vector<Fault> faults_;
};

// A port of the memory.
class AxiMemory {
  public:
    AxiMemory(Storage& storage, unsigned data_bytes) : storage_(storage), data_bytes_(data_bytes) {}

    const std::string& violation() const { return violation_; }
    SlaveWires& wires() { return wires_; }

    void configure(const Settings& settings) {
        settings_ = settings;
        random_ = Random(settings.seed);
    }

    // Choose what the memory drives in this cycle.
    void drive(uint64_t now) {
        const double stall = settings_.stall_probability;
        wires_.read_address_ready = settings_.accept && reads_.size() < settings_.outstanding && !random_.chance(stall);
        wires_.write_address_ready =
            settings_.accept && writes_.size() + responses_.size() < settings_.outstanding && !random_.chance(stall);
        wires_.beat_ready = !writes_.empty() && now >= next_write_beat_ && !random_.chance(stall);
        if (!wires_.read_valid && settings_.answer && next_read_beat_ <= now && choose_read(now) && !random_.chance(stall))
            present_read();
        if (!wires_.response_valid && settings_.answer && !responses_.empty() && responses_.front().due <= now && !random_.chance(stall)) {
            wires_.response_valid = true;
            wires_.response_id = responses_.front().id;
            wires_.response = uint8_t(responses_.front().response);
        }
    }

    // Take what passes at the clock edge at the end of this cycle.
    void sample(uint64_t now, const MasterWires& master) {
        check_stable(master);
        if (master.read.valid && wires_.read_address_ready && check_burst("read", master.read))
            reads_.push_back({master.read, 0, now + settings_.read_latency + random_.upto(settings_.hold)});
        if (wires_.read_valid && master.read_ready) {
            next_read_beat_ = now + settings_.beat_interval;
            if (wires_.read_last) reads_.erase(reads_.begin() + long(reading_));
            wires_.read_valid = false;
        }
        // An address is there from the next cycle on, so beats are taken first.
        if (master.beat.valid && wires_.beat_ready) take_write(now, master.beat);
        if (master.write.valid && wires_.write_address_ready && check_burst("write", master.write))
            writes_.push_back({master.write, 0, kResponseOkay});
        if (wires_.response_valid && master.response_ready) {
            responses_.pop_front();
            wires_.response_valid = false;
        }
        previous_ = master;
        previous_.read.valid = master.read.valid && !wires_.read_address_ready;
        previous_.write.valid = master.write.valid && !wires_.write_address_ready;
        previous_.beat.valid = master.beat.valid && !wires_.beat_ready;
    }

  private:
    struct Read {
        Address address;
        unsigned beat;
        uint64_t due;
    };
    struct Write {
        Address address;
        unsigned beat;
        unsigned response;
    };
    struct Response {
        uint8_t id;
        unsigned response;
        uint64_t due;
    };
    uint64_t beat_address(const Address& burst, unsigned beat) const {
        return (uint64_t(burst.address) & ~uint64_t(data_bytes_ - 1)) + uint64_t(beat) * data_bytes_;
    }

    // The first read that is due, but not past an earlier one of its core; a burst that has begun goes on.
    bool choose_read(uint64_t now) {
        if (reading_ < reads_.size() && reads_[reading_].beat) return true;
        unsigned cores = 0;
        for (reading_ = 0; reading_ < reads_.size(); ++reading_) {
            const unsigned core = 1u << (reads_[reading_].address.id >> kCoreShift);
            if (!(cores & core) && reads_[reading_].due <= now) return true;
            cores |= core;
        }
        return false;
    }

    void present_read() {
        Read& read = reads_[reading_];
        const uint64_t address = beat_address(read.address, read.beat);
        wires_.read_response = uint8_t(storage_.response_at(address, data_bytes_));
        if (wires_.read_response == kResponseOkay)
            std::memcpy(wires_.read_data, storage_.at(address), data_bytes_);
        else
            std::memset(wires_.read_data, kBadByte, data_bytes_);
        wires_.read_valid = true;
        wires_.read_id = read.address.id;
        wires_.read_last = read.beat == read.address.length;
        ++read.beat;
    }

    void take_write(uint64_t now, const WriteBeat& beat) {
        Write& write = writes_.front();
        const uint64_t address = beat_address(write.address, write.beat);
        const unsigned response = storage_.response_at(address, data_bytes_);
        write.response = std::max(write.response, response);
        if (response == kResponseOkay)
            for (unsigned lane = 0; lane < data_bytes_; ++lane)
                if (beat.strobes >> lane & 1) storage_.at(address)[lane] = beat.data[lane];
        const bool last = write.beat == write.address.length;
        if (beat.last != last) fail("WLAST must be high on the last beat of a burst only", write.address.address);
        next_write_beat_ = now + settings_.beat_interval;
        ++write.beat;
        if (last) {
            responses_.push_back({write.address.id, write.response, now + settings_.write_latency});
            writes_.pop_front();
        }
    }

    bool check_burst(const char* kind, const Address& burst) {
        const uint64_t first = beat_address(burst, 0), last = beat_address(burst, burst.length) + data_bytes_ - 1;
        if (burst.burst != 1) return fail("AxBURST must be INCR", burst.address);
        if (1u << burst.size != data_bytes_) return fail("AxSIZE must be the width of the bus", burst.address);
        if (burst.length > 15) return fail("a burst must have at most 16 beats", burst.address);
        if (first >> 12 != last >> 12) return fail("a burst must not cross a boundary of 4096 bytes", burst.address);
        (void)kind;
        return true;
    }

    void check_stable(const MasterWires& master) {
        if (previous_.read.valid && !(master.read.valid && master.read.same(previous_.read)))
            fail("a read address must stay until it is accepted", previous_.read.address);
        if (previous_.write.valid && !(master.write.valid && master.write.same(previous_.write)))
            fail("a write address must stay until it is accepted", previous_.write.address);
        if (previous_.beat.valid && !(master.beat.valid && master.beat.same(previous_.beat)))
            fail("write data must stay until they are accepted", writes_.empty() ? 0 : writes_.front().address.address);
    }

    bool fail(const char* rule, uint32_t address) {
        char text[160];
        std::snprintf(text, sizeof text, "%s (burst at 0x%08x)", rule, address);
        if (violation_.empty()) violation_ = text;
        return false;
    }

    Storage& storage_;
    unsigned data_bytes_;
    Settings settings_{40, 40, 1, 8, 1, 1, 0, 0, 0.0};
    Random random_{0};
    SlaveWires wires_;
    MasterWires previous_;
    std::deque<Read> reads_;
    std::deque<Write> writes_;
    std::deque<Response> responses_;
    size_t reading_ = 0;
    uint64_t next_read_beat_ = 0, next_write_beat_ = 0;
    std::string violation_;
};

}  // namespace lutterfly
