// A chip of SDR SDRAM at the pins of a simulated board: it keeps words, and stops at commands that its data sheet forbids.
//
// Source: JEDEC 21-C, section 3.11.5 (SDR SDRAM). Bursts are of one word, as litedram uses them. Times are in cycles.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

struct SdramTimes {
    int64_t power_up, rp, rcd, wr, rfc, rrd, rc, ras, refi, cas_latency;
};

// The levels of the pins in one cycle.
struct SdramPins {
    bool clock_enable, select_n, ras_n, cas_n, we_n;
    unsigned bank, address;
    uint32_t mask, data_out, data_off;
};

template <unsigned kBankBits, unsigned kRowBits, unsigned kColumnBits, unsigned kDataBits, bool kHasMask>
class Sdram {
  public:
    explicit Sdram(const SdramTimes& times) : times_(times), words_(size_t(1) << (kBankBits + kRowBits + kColumnBits)) {
        // Nothing may rely on what a chip has at first.
        for (size_t at = 0; at < words_.size(); ++at) words_[at] = uint32_t(at * 0x9e3779b1u + 0x7f4a7c15u) & kAll;
    }

    // What is wrong with the last cycle's command; empty if nothing is.
    const std::string& broken() const { return broken_; }

    // The chip's edge of a cycle, of which it sees the pins; the level of the data's pins in the next one.
    //
    // The FPGA takes that word into its registers with the edge after it.
    uint32_t step(const SdramPins& pins) {
        ++now_;
        const uint32_t word = is_read_[0] ? read_[0] : kUndefined & kAll;
        if (is_read_[0] && (pins.data_off & kAll) != kAll) stop("the FPGA drives data while the chip does");
        for (unsigned at = 0; at + 1 < kMostLatency; ++at) {
            is_read_[at] = is_read_[at + 1];
            read_[at] = read_[at + 1];
        }
        is_read_[kMostLatency - 1] = false;
        if (pins.clock_enable && !pins.select_n) {
            commanded(pins);
        } else if (!pins.clock_enable && is_up_) {
            stop("the clock is disabled");
        }
        is_up_ |= pins.clock_enable;
        // A few may be late, since commands that are under way end before them.
        if (mode_ && refreshes_ + kLateRefreshes < (now_ - mode_) / times_.refi) stop("a refresh is missing");
        return word;
    }

  private:
    static constexpr unsigned kBanks = 1u << kBankBits, kMostLatency = 3, kLateRefreshes = 4, kAutomatic = 1u << 10;
    static constexpr uint32_t kAll = kDataBits == 32 ? ~0u : (1u << kDataBits % 32) - 1, kUndefined = 0xdeadbeef;

    struct Bank {
        bool is_open = false;
        unsigned row = 0;
        // When it was opened and written, and when it may be opened again.
        int64_t opened = kLongAgo, written = kLongAgo, closed = kLongAgo;
    };
    static constexpr int64_t kLongAgo = -1000000;

    void stop(const char* text) {
        if (broken_.empty()) broken_ = std::string("SDRAM: ") + text;
    }
    void at_least(int64_t since, int64_t cycles, const char* text) {
        if (now_ - since < cycles) stop(text);
    }

    void commanded(const SdramPins& pins) {
        const unsigned command = unsigned(pins.ras_n) << 2 | unsigned(pins.cas_n) << 1 | unsigned(pins.we_n);
        if (command == 7) return;
        if (!began_) at_least(0, times_.power_up, "a command comes before the clock is steady");
        began_ = true;
        at_least(refreshed_, times_.rfc, "tRFC is too short");
        Bank& bank = banks_[pins.bank];
        switch (command) {
            case 0: return set_mode(pins.address);
            case 1: return refresh();
            case 2: return precharge(pins);
            case 3: return open(bank, pins);
            case 4: return write(bank, pins);
            case 5: return read(bank, pins);
            default: return stop("a burst is ended, and there are none");
        }
    }

    void all_closed() {
        for (const Bank& bank : banks_) {
            if (bank.is_open) stop("a bank is open");
            at_least(bank.closed, times_.rp, "tRP is too short");
        }
    }

    void set_mode(unsigned mode) {
        all_closed();
        // litedram sets a bit of a DLL, which these chips do not have, before it clears it.
        if ((mode & ~(7u << 4) & ~(1u << 8)) != 0) stop("bursts must be of one word");
        if (int64_t(mode >> 4 & 7) != times_.cas_latency) stop("the latency is another one");
        mode_ = mode & 1u << 8 ? 0 : now_;
        if (mode_ && refreshes_ < 2) stop("two refreshes must come before the mode");
        refreshes_ = 0;
    }

    void refresh() {
        all_closed();
        ++refreshes_;
        refreshed_ = now_;
    }

    void precharge(const SdramPins& pins) {
        for (unsigned number = 0; number < kBanks; ++number) {
            if (!(pins.address & kAutomatic) && number != pins.bank) continue;
            if (banks_[number].is_open) close(banks_[number], now_);
        }
        is_precharged_ = true;
    }

    void close(Bank& bank, int64_t when) {
        bank.is_open = false;
        if (when - bank.opened < times_.ras) stop("tRAS is too short");
        if (when - bank.written < times_.wr) stop("tWR is too short");
        bank.closed = when;
    }

    void open(Bank& bank, const SdramPins& pins) {
        if (!mode_ || !is_precharged_) stop("a row is opened before the chip is initialised");
        if (bank.is_open) stop("a row is opened in an open bank");
        at_least(bank.closed, times_.rp, "tRP is too short");
        at_least(bank.opened, times_.rc, "tRC is too short");
        for (const Bank& other : banks_) at_least(other.opened, times_.rrd, "tRRD is too short");
        bank.is_open = true;
        bank.row = pins.address;
        bank.opened = now_;
    }

    uint32_t& word_of(Bank& bank, const SdramPins& pins) {
        if (!bank.is_open) stop("a word of a closed bank is accessed");
        at_least(bank.opened, times_.rcd, "tRCD is too short");
        const size_t column = pins.address & ((1u << kColumnBits) - 1);
        return words_[((size_t(bank.row) << kBankBits | pins.bank) << kColumnBits) + column];
    }

    void read(Bank& bank, const SdramPins& pins) {
        const size_t place = size_t(times_.cas_latency) - 1;
        read_[place - 1] = word_of(bank, pins);
        is_read_[place - 1] = true;
        if (kHasMask && pins.mask) stop("a word that is read is masked");
        if (pins.address & kAutomatic) close_itself(bank, now_ + 1);
    }

    void write(Bank& bank, const SdramPins& pins) {
        uint32_t& word = word_of(bank, pins);
        if (pins.data_off & kAll) stop("a word is written that the FPGA does not drive");
        if (is_read_[0]) stop("a word is written while another one is read");
        for (unsigned byte = 0; byte < kDataBits / 8; ++byte) {
            if (kHasMask && (pins.mask >> byte & 1)) continue;
            const uint32_t bits = uint32_t(0xff) << 8 * byte;
            word = (word & ~bits) | (pins.data_out & bits);
        }
        bank.written = now_;
        if (pins.address & kAutomatic) close_itself(bank, now_ + times_.wr);
    }

    // After its access the bank closes as soon as it may.
    void close_itself(Bank& bank, int64_t when) {
        const int64_t least = bank.opened + times_.ras;
        close(bank, when < least ? least : when);
    }

    const SdramTimes times_;
    std::vector<uint32_t> words_;
    std::array<Bank, kBanks> banks_;
    std::array<uint32_t, kMostLatency> read_{};
    std::array<bool, kMostLatency> is_read_{};
    int64_t now_ = 0, mode_ = 0, refreshed_ = kLongAgo, refreshes_ = 0;
    bool is_up_ = false, began_ = false, is_precharged_ = false;
    std::string broken_;
};
