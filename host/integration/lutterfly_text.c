/* What went wrong, in words, see lutterfly.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "lutterfly.h"
#include "lutterfly_registers.h"

/* A text that is cut where there is no more room, and its length without a cut. */
typedef struct writer {
    char *text;
    size_t bytes;
    size_t length;
} writer;

static void put(writer *out, char letter) {
    if (out->length + 1 < out->bytes) out->text[out->length] = letter;
    ++out->length;
}

static void words(writer *out, const char *text) {
    while (*text != '\0') put(out, *text++);
}

static void decimal(writer *out, uint32_t value) {
    uint32_t unit = 1000000000u;
    while (unit > 1 && value / unit == 0) unit /= 10;
    for (; unit > 0; unit /= 10) put(out, (char)('0' + value / unit % 10));
}

static void hexadecimal(writer *out, uint32_t value) {
    int shift;
    words(out, "0x");
    for (shift = 28; shift >= 0; shift -= 4) put(out, "0123456789abcdef"[value >> shift & 15]);
}

/* "<name> must be <expected>, not <found>; <remedy>" */
static void must_be(
    writer *out, const char *name, const lutterfly_error *error, int in_hexadecimal, const char *remedy) {
    void (*number)(writer *, uint32_t) = in_hexadecimal ? hexadecimal : decimal;
    words(out, name);
    words(out, " must be ");
    number(out, error->expected);
    words(out, ", not ");
    number(out, error->found);
    words(out, "; ");
    words(out, remedy);
}

static void within(writer *out, const char *name, const lutterfly_error *error, const char *unit, const char *remedy) {
    words(out, name);
    words(out, " must end within ");
    decimal(out, error->expected);
    words(out, unit);
    words(out, ", and does not; ");
    words(out, remedy);
}

static void where(writer *out, const lutterfly_error *error) {
    words(out, ", command ");
    decimal(out, error->index);
    if (error->stage == LUTTERFLY_BODY) {
        words(out, " of the inference; ");
        return;
    }
    words(out, " of stage ");
    decimal(out, error->stage);
    words(out, " of the prologue; ");
}

static void stopped(writer *out, const lutterfly_error *error) {
    const char *code = "unknown code", *unit = "unknown unit", *remedy = "check the register port";
    int has_address = 0;
#define CODE(name, value, address, what) \
    if (error->code == value) {          \
        code = #name;                    \
        has_address = address;           \
        remedy = what;                   \
    }
    LUTTERFLY_CODES(CODE)
#undef CODE
#define OF_UNIT(code_value, unit_value, what) \
    if (error->code == code_value && error->unit == unit_value) remedy = what;
    LUTTERFLY_REMEDIES_OF_UNITS(OF_UNIT)
#undef OF_UNIT
#define UNIT(name, value) \
    if (error->unit == value) unit = #name;
    LUTTERFLY_UNITS(UNIT)
#undef UNIT
    words(out, code);
    words(out, " in ");
    words(out, unit);
    words(out, " of core ");
    decimal(out, error->core);
    if (has_address) {
        words(out, " at address ");
        hexadecimal(out, error->address);
    }
    where(out, error);
    words(out, remedy);
}

static void all(writer *out, const lutterfly_error *error) {
    switch (error->status) {
        case LUTTERFLY_OK: words(out, "nothing went wrong"); break;
        case LUTTERFLY_BAD_ARGUMENT:
            words(out, "arguments must all be given, and the arena's address must be a multiple of 4096, not ");
            hexadecimal(out, error->found);
            break;
        case LUTTERFLY_TRANSPORT_FAILED:
            words(out, "the transport must reach the accelerator, and fails with ");
            if (error->found & 0x80000000u) put(out, '-');
            decimal(out, error->found & 0x80000000u ? 0u - error->found : error->found);
            words(out, "; check the connection");
            break;
        case LUTTERFLY_WRONG_ID: must_be(out, "ID", error, 1, "check the register port's address"); break;
        case LUTTERFLY_WRONG_VERSION:
            must_be(out, "VERSION", error, 1, "use the release of lutterfly that the hardware was generated with");
            break;
        case LUTTERFLY_WRONG_CONFIGURATION:
            must_be(out, "CONFIG_HASH", error, 1, "export the model for the configuration of this hardware");
            break;
        case LUTTERFLY_WRONG_MODEL:
            must_be(out, "the model's configuration", error, 1, "export it for that of this hardware");
            break;
        case LUTTERFLY_ARENA_TOO_SMALL:
            must_be(out, "bytes of the arena", error, 0, "give it more, or export with a smaller --arena-bytes");
            break;
        case LUTTERFLY_NOT_LOADED: words(out, "a model must be loaded first; call lutterfly_load"); break;
        case LUTTERFLY_WRONG_COUNT: must_be(out, "buffers", error, 0, "give one for each input and output"); break;
        case LUTTERFLY_WRONG_LENGTH:
            words(out, "number ");
            decimal(out, error->index);
            words(out, ": ");
            must_be(out, "bytes", error, 0, "give the whole tensor");
            break;
        case LUTTERFLY_STOPPED: stopped(out, error); break;
        case LUTTERFLY_RUN_TIMEOUT:
            within(out, "a run", error, " cycles", "check that the external memory answers");
            break;
        case LUTTERFLY_RESET_TIMEOUT:
            within(out, "a soft reset", error, " polls", "reset the hardware as a whole");
            break;
    }
}

size_t lutterfly_error_text(const lutterfly_error *error, char *text, size_t bytes) {
    writer out = {NULL, 0, 0};
    out.text = text;
    out.bytes = bytes;
    all(&out, error);
    if (bytes > 0) text[out.length < bytes ? out.length : bytes - 1] = '\0';
    return out.length;
}
