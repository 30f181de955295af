/* The driver of a Lutterfly accelerator in C99, see lutterfly.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "lutterfly.h"

#include "lutterfly_registers.h"

/* A soft reset takes a few hundred cycles, whatever the memory does, and a poll one at least. */
#define RESET_POLLS 65536u
/* Of a tensor on its way between the two orders; on the stack. */
#define CHUNK_BYTES 64u

#define TRY(call)                                             \
    do {                                                      \
        lutterfly_status status_ = (call);                    \
        if (status_ != LUTTERFLY_OK) return status_;          \
    } while (0)

static lutterfly_status fail(lutterfly_device *device, lutterfly_status status, uint32_t expected, uint32_t found) {
    static const lutterfly_error nothing = {LUTTERFLY_OK, 0, 0, 0, 0, 0, LUTTERFLY_BODY, 0, 0};
    device->error = nothing;
    device->error.status = status;
    device->error.expected = expected;
    device->error.found = found;
    return status;
}

static lutterfly_status checked(lutterfly_device *device, int result) {
    return result == 0 ? LUTTERFLY_OK : fail(device, LUTTERFLY_TRANSPORT_FAILED, 0, (uint32_t)result);
}

static lutterfly_status read_register(lutterfly_device *device, uint32_t offset, uint32_t *value) {
    *value = 0;
    return checked(device, device->transport.read_register(device->transport.context, offset, value));
}

static lutterfly_status write_register(lutterfly_device *device, uint32_t offset, uint32_t value) {
    return checked(device, device->transport.write_register(device->transport.context, offset, value));
}

static lutterfly_status read_memory(lutterfly_device *device, uint32_t address, void *data, uint32_t bytes) {
    return checked(device, device->transport.read_memory(device->transport.context, address, data, bytes));
}

static lutterfly_status write_memory(lutterfly_device *device, uint32_t address, const void *data, uint32_t bytes) {
    return checked(device, device->transport.write_memory(device->transport.context, address, data, bytes));
}

/* Identity, reset. */

static lutterfly_status expect(lutterfly_device *device, uint32_t offset, uint32_t expected, lutterfly_status wrong) {
    uint32_t found;
    TRY(read_register(device, offset, &found));
    return found == expected ? LUTTERFLY_OK : fail(device, wrong, expected, found);
}

lutterfly_status lutterfly_check_identity(lutterfly_device *device) {
    TRY(expect(device, LUTTERFLY_ID_OFFSET, LUTTERFLY_ID, LUTTERFLY_WRONG_ID));
    TRY(expect(device, LUTTERFLY_VERSION_OFFSET, LUTTERFLY_VERSION, LUTTERFLY_WRONG_VERSION));
    return expect(device, LUTTERFLY_CONFIG_HASH_OFFSET, device->config_hash, LUTTERFLY_WRONG_CONFIGURATION);
}

lutterfly_status lutterfly_reset(lutterfly_device *device) {
    uint32_t poll, status;
    device->is_resident = 0;
    device->must_reset = 1;
    TRY(write_register(device, LUTTERFLY_CONTROL_OFFSET, LUTTERFLY_CONTROL_RESET));
    for (poll = 0; poll < RESET_POLLS; ++poll) {
        TRY(read_register(device, LUTTERFLY_STATUS_OFFSET, &status));
        if (!(status & LUTTERFLY_STATUS_RESETTING)) {
            device->must_reset = 0;
            return LUTTERFLY_OK;
        }
    }
    return fail(device, LUTTERFLY_RESET_TIMEOUT, RESET_POLLS, 0);
}

lutterfly_status lutterfly_open(
    lutterfly_device *device, const lutterfly_transport *transport, uint32_t arena_base, uint32_t arena_bytes,
    const lutterfly_model *model) {
    if (device == NULL) return LUTTERFLY_BAD_ARGUMENT;
    fail(device, LUTTERFLY_OK, 0, 0);
    device->model = NULL;
    device->queues = NULL;
    device->queues_watchdog = 0;
    device->is_resident = 0;
    device->must_reset = 1;
    device->cycles = 0;
    device->arena_base = arena_base;
    device->arena_bytes = arena_bytes;
    device->watchdog_cycles = LUTTERFLY_WATCHDOG_RESET_VALUE;
    if (transport == NULL || model == NULL || transport->read_register == NULL || transport->write_register == NULL ||
        transport->read_memory == NULL || transport->write_memory == NULL ||
        (arena_base & ~LUTTERFLY_EXTERNAL_BASE_MASK) != 0)
        return fail(device, LUTTERFLY_BAD_ARGUMENT, 0, arena_base);
    device->transport = *transport;
    device->config_hash = model->config_hash;
    device->cores = model->cores;
    TRY(lutterfly_check_identity(device));
    return lutterfly_reset(device);
}

/* Runs. */

/* Write what a run of all cores needs, which ends with an interrupt. What is written again counts as changed: the
 * hardware would fetch commands that it still holds. Other commands have other queues, so they are fetched. */
static lutterfly_status set_up(lutterfly_device *device, const lutterfly_queues *queues) {
    uint32_t core;
    if (device->queues != queues || device->queues_watchdog != device->watchdog_cycles) {
        /* Unknown if a write fails. */
        device->queues = NULL;
        TRY(write_register(device, LUTTERFLY_EXTERNAL_BASE_OFFSET, device->arena_base));
        for (core = 0; core < device->cores; ++core) {
            const lutterfly_queues *own = &queues[core];
            const uint32_t offset = LUTTERFLY_OF_CORE(0u, core);
            TRY(write_register(device, offset + LUTTERFLY_DMA_PROGRAM_OFFSET, own->dma_address));
            TRY(write_register(device, offset + LUTTERFLY_DMA_COMMANDS_OFFSET, own->dma_commands));
            TRY(write_register(device, offset + LUTTERFLY_COMPUTE_PROGRAM_OFFSET, own->compute_address));
            TRY(write_register(device, offset + LUTTERFLY_COMPUTE_COMMANDS_OFFSET, own->compute_commands));
        }
        TRY(write_register(device, LUTTERFLY_WATCHDOG_OFFSET, device->watchdog_cycles));
        TRY(write_register(device, LUTTERFLY_INTERRUPT_ENABLE_OFFSET, LUTTERFLY_INTERRUPT_ENABLE_MASK));
        device->queues = queues;
        device->queues_watchdog = device->watchdog_cycles;
    }
    return write_register(device, LUTTERFLY_INTERRUPT_OFFSET, LUTTERFLY_INTERRUPT_MASK);
}

static lutterfly_status wait_for_end(lutterfly_device *device, uint32_t cycles, uint32_t *status) {
    uint32_t poll;
    if (device->transport.wait != NULL) {
        TRY(checked(device, device->transport.wait(device->transport.context, cycles)));
        return read_register(device, LUTTERFLY_STATUS_OFFSET, status);
    }
    for (poll = 0; poll < cycles; ++poll) {
        TRY(read_register(device, LUTTERFLY_STATUS_OFFSET, status));
        if (!(*status & LUTTERFLY_STATUS_BUSY)) return LUTTERFLY_OK;
    }
    return LUTTERFLY_OK;
}

/* What the error registers say of the core that has stopped first. */
static lutterfly_status stopped(lutterfly_device *device, uint32_t stage) {
    uint32_t core = 0, word, address;
    if (device->cores > 1) TRY(read_register(device, LUTTERFLY_ERROR_CORE_OFFSET, &core));
    TRY(read_register(device, LUTTERFLY_OF_CORE(LUTTERFLY_ERROR_OFFSET, core), &word));
    TRY(read_register(device, LUTTERFLY_OF_CORE(LUTTERFLY_ERROR_ADDRESS_OFFSET, core), &address));
    fail(device, LUTTERFLY_STOPPED, 0, 0);
    device->error.code = LUTTERFLY_ERROR_CODE(word);
    device->error.unit = LUTTERFLY_ERROR_UNIT(word);
    device->error.index = LUTTERFLY_ERROR_INDEX(word);
    device->error.address = address;
    device->error.core = core;
    device->error.stage = stage;
    return LUTTERFLY_STOPPED;
}

/* Cycles of the last run: those of the core that was last. */
static lutterfly_status count(lutterfly_device *device) {
    uint32_t core, cycles;
    device->cycles = 0;
    for (core = 0; core < device->cores; ++core) {
        TRY(read_register(device, LUTTERFLY_OF_CORE(LUTTERFLY_CYCLES_OFFSET, core), &cycles));
        if (cycles > device->cycles) device->cycles = cycles;
    }
    return LUTTERFLY_OK;
}

/* Run what the queues of all cores execute, to its end. */
static lutterfly_status run(lutterfly_device *device, const lutterfly_queues *queues, uint32_t stage) {
    const uint32_t most = device->model->most_cycles;
    uint32_t status = 0;
    TRY(set_up(device, queues));
    /* Until it has ended well: also where the transport fails in between. */
    device->must_reset = 1;
    TRY(write_register(device, LUTTERFLY_CONTROL_OFFSET, LUTTERFLY_CONTROL_START));
    TRY(wait_for_end(device, most, &status));
    TRY(write_register(device, LUTTERFLY_INTERRUPT_OFFSET, LUTTERFLY_INTERRUPT_MASK));
    TRY(count(device));
    if (status & LUTTERFLY_STATUS_ERROR) return stopped(device, stage);
    if (!(status & LUTTERFLY_STATUS_DONE)) {
        fail(device, LUTTERFLY_RUN_TIMEOUT, most, 0);
        device->error.stage = stage;
        return LUTTERFLY_RUN_TIMEOUT;
    }
    device->must_reset = 0;
    return LUTTERFLY_OK;
}

static lutterfly_status write_blocks(lutterfly_device *device, const lutterfly_block *blocks, uint32_t block_count) {
    uint32_t index;
    for (index = 0; index < block_count; ++index)
        if (blocks[index].bytes > 0)
            TRY(write_memory(device, blocks[index].address, blocks[index].data, blocks[index].bytes));
    return LUTTERFLY_OK;
}

/* Have the model resident and the hardware idle. */
static lutterfly_status prepare(lutterfly_device *device) {
    const lutterfly_model *model = device->model;
    uint32_t stage;
    if (device->must_reset) TRY(lutterfly_reset(device));
    if (device->is_resident) return LUTTERFLY_OK;
    for (stage = 0; stage < model->stage_count; ++stage) {
        TRY(write_blocks(device, model->stages[stage].blocks, model->stages[stage].block_count));
        TRY(run(device, model->stages[stage].queues, stage));
    }
    TRY(write_blocks(device, model->contents, model->content_count));
    device->is_resident = 1;
    return LUTTERFLY_OK;
}

lutterfly_status lutterfly_load(lutterfly_device *device, const lutterfly_model *model) {
    if (model == NULL) return fail(device, LUTTERFLY_BAD_ARGUMENT, 0, device->arena_base);
    if (model->config_hash != device->config_hash || model->cores != device->cores)
        return fail(device, LUTTERFLY_WRONG_MODEL, device->config_hash, model->config_hash);
    if (model->arena_bytes > device->arena_bytes)
        return fail(device, LUTTERFLY_ARENA_TOO_SMALL, model->arena_bytes, device->arena_bytes);
    if (device->model != model) device->is_resident = 0;
    device->model = model;
    return prepare(device);
}

/* Tensors: between the order of the ONNX tensor and that of the accelerator, and between its values and the codes. */

/* Where a tensor's pixels are in the user's array: a walk over shares, rows and columns. */
typedef struct walk {
    const lutterfly_port *port;
    uint32_t share, row, column;
} walk;

static uint32_t pixel_bytes(const lutterfly_port *port) {
    return port->bits == 1 ? (port->channels + 7) / 8 : port->channels;
}

/* Of a pixel's first element, in the user's array. */
static size_t pixel_start(const walk *at) {
    const lutterfly_port *port = at->port;
    const size_t share_bytes = port->bytes / port->address_count;
    return at->share * share_bytes + (size_t)at->row * port->strides[0] + (size_t)at->column * port->strides[1];
}

static void next_pixel(walk *at) {
    if (++at->column < at->port->width) return;
    at->column = 0;
    if (++at->row < at->port->height) return;
    at->row = 0;
    ++at->share;
}

/* The byte of the accelerator's that has number `byte` of a pixel whose first element is values[0]. */
static uint8_t to_code(const lutterfly_port *port, const uint8_t *values, uint32_t byte) {
    const uint8_t flip = port->is_unsigned ? 0x80 : 0;
    const size_t stride = port->strides[2];
    uint32_t bit;
    uint8_t found = 0;
    if (port->bits != 1) return (uint8_t)(values[byte * stride] ^ flip);
    for (bit = 0; bit < 8 && 8 * byte + bit < port->channels; ++bit)
        if (!((values[(8 * byte + bit) * stride] ^ flip) & 0x80)) found |= (uint8_t)(1u << bit);
    return found;
}

static void from_code(const lutterfly_port *port, uint8_t code, uint8_t *values, uint32_t byte) {
    const uint8_t flip = port->is_unsigned ? 0x80 : 0;
    const size_t stride = port->strides[2];
    uint32_t bit;
    if (port->bits != 1) {
        values[byte * stride] = code ^ flip;
        return;
    }
    for (bit = 0; bit < 8 && 8 * byte + bit < port->channels; ++bit)
        values[(8 * byte + bit) * stride] = (uint8_t)((code >> bit & 1 ? 0x01 : 0xff) ^ flip);
}

/* A share lies side by side in the arena: it passes through a chunk, which is full or the share's last. */
static lutterfly_status write_port(lutterfly_device *device, const lutterfly_port *port, const uint8_t *data) {
    walk at = {NULL, 0, 0, 0};
    uint8_t chunk[CHUNK_BYTES];
    at.port = port;
    while (at.share < port->address_count) {
        const uint32_t share = at.share;
        uint32_t address = port->addresses[share], used = 0, byte;
        while (at.share == share) {
            const uint8_t *values = data + pixel_start(&at);
            for (byte = 0; byte < pixel_bytes(port); ++byte) {
                chunk[used++] = to_code(port, values, byte);
                if (used < CHUNK_BYTES) continue;
                TRY(write_memory(device, address, chunk, used));
                address += used;
                used = 0;
            }
            next_pixel(&at);
        }
        if (used > 0) TRY(write_memory(device, address, chunk, used));
    }
    return LUTTERFLY_OK;
}

static lutterfly_status read_port(lutterfly_device *device, const lutterfly_port *port, uint8_t *data) {
    walk at = {NULL, 0, 0, 0};
    uint8_t chunk[CHUNK_BYTES];
    at.port = port;
    while (at.share < port->address_count) {
        const uint32_t share = at.share;
        uint32_t left = port->height * port->width * pixel_bytes(port), address = port->addresses[share];
        uint32_t there = 0, used = 0, byte;
        while (at.share == share) {
            uint8_t *values = data + pixel_start(&at);
            for (byte = 0; byte < pixel_bytes(port); ++byte) {
                if (used == there) {
                    there = left < CHUNK_BYTES ? left : CHUNK_BYTES;
                    TRY(read_memory(device, address, chunk, there));
                    address += there;
                    left -= there;
                    used = 0;
                }
                from_code(port, chunk[used++], values, byte);
            }
            next_pixel(&at);
        }
    }
    return LUTTERFLY_OK;
}

/* Inference. */

static lutterfly_status check_length(
    lutterfly_device *device, const lutterfly_port *port, uint32_t index, const void *data, size_t bytes) {
    if (data != NULL && bytes == port->bytes) return LUTTERFLY_OK;
    fail(device, LUTTERFLY_WRONG_LENGTH, port->bytes, data == NULL ? 0 : (uint32_t)bytes);
    device->error.index = index;
    return LUTTERFLY_WRONG_LENGTH;
}

lutterfly_status lutterfly_infer(
    lutterfly_device *device, const lutterfly_input *inputs, size_t input_count, const lutterfly_output *outputs,
    size_t output_count) {
    const lutterfly_model *model = device->model;
    uint32_t index;
    if (model == NULL) return fail(device, LUTTERFLY_NOT_LOADED, 0, 0);
    if (input_count != model->input_count)
        return fail(device, LUTTERFLY_WRONG_COUNT, model->input_count, (uint32_t)input_count);
    if (output_count != model->output_count)
        return fail(device, LUTTERFLY_WRONG_COUNT, model->output_count, (uint32_t)output_count);
    if (inputs == NULL || outputs == NULL) return fail(device, LUTTERFLY_BAD_ARGUMENT, 0, device->arena_base);
    for (index = 0; index < model->input_count; ++index)
        TRY(check_length(device, &model->inputs[index], index, inputs[index].data, inputs[index].bytes));
    for (index = 0; index < model->output_count; ++index)
        TRY(check_length(device, &model->outputs[index], index, outputs[index].data, outputs[index].bytes));
    TRY(prepare(device));
    for (index = 0; index < model->input_count; ++index)
        TRY(write_port(device, &model->inputs[index], (const uint8_t *)inputs[index].data));
    TRY(run(device, model->body, LUTTERFLY_BODY));
    for (index = 0; index < model->output_count; ++index)
        TRY(read_port(device, &model->outputs[index], (uint8_t *)outputs[index].data));
    return LUTTERFLY_OK;
}
