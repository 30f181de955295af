/* The driver of a Lutterfly accelerator in C99: programs and inferences, with every wait bounded.
 *
 * It needs no operating system, allocates nothing and computes nothing in floating point. It includes <stddef.h> and
 * <stdint.h>, which every compiler brings; compilers may call memcpy and memset. It reaches the hardware through
 * functions of yours, see lutterfly_transport.
 *
 * One device must be used by one thread at a time.
 *
 *     lutterfly_device device;
 *     if (lutterfly_open(&device, &transport, arena_base, arena_bytes, &model) != LUTTERFLY_OK) ...
 *     if (lutterfly_load(&device, &model) != LUTTERFLY_OK) ...
 *     if (lutterfly_infer(&device, inputs, 1, outputs, 1) != LUTTERFLY_OK) ...
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LUTTERFLY_H
#define LUTTERFLY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function of the driver returns. */
typedef enum lutterfly_status {
    LUTTERFLY_OK = 0,
    /* An argument is missing, or the arena's address is not a multiple of 4096; `found` is that address. */
    LUTTERFLY_BAD_ARGUMENT,
    /* A function of the transport failed; `found` is what it returned. */
    LUTTERFLY_TRANSPORT_FAILED,
    /* ID, VERSION or CONFIG_HASH is `found` and not `expected`. */
    LUTTERFLY_WRONG_ID,
    LUTTERFLY_WRONG_VERSION,
    LUTTERFLY_WRONG_CONFIGURATION,
    /* The model is for the configuration `found`, and the device has `expected`. */
    LUTTERFLY_WRONG_MODEL,
    /* The model needs `expected` bytes of the arena, which has `found`. */
    LUTTERFLY_ARENA_TOO_SMALL,
    /* No model has been loaded. */
    LUTTERFLY_NOT_LOADED,
    /* Inputs or outputs must be `expected` buffers, not `found`; or number `index` must have `expected` bytes. */
    LUTTERFLY_WRONG_COUNT,
    LUTTERFLY_WRONG_LENGTH,
    /* The accelerator stopped a run: `code`, `unit`, `index`, `address`, `core` and `stage` say why and where. */
    LUTTERFLY_STOPPED,
    /* A run did not end within `expected` cycles, and the watchdog did not stop it. */
    LUTTERFLY_RUN_TIMEOUT,
    /* A soft reset did not end: reset the hardware as a whole. */
    LUTTERFLY_RESET_TIMEOUT
} lutterfly_status;

/* What went wrong last. */
typedef struct lutterfly_error {
    lutterfly_status status;
    /* Of a run that stopped: LUTTERFLY_CODE_* and LUTTERFLY_UNIT_* of lutterfly_registers.h. */
    uint32_t code;
    uint32_t unit;
    /* The command in its queue, modulo 65,536; or which input or output has the wrong length. */
    uint32_t index;
    /* Out of range, or external and relative to the arena, of the burst that failed; 0 where there is none. */
    uint32_t address;
    uint32_t core;
    /* The stage of the prologue, from 0 on; LUTTERFLY_BODY for an inference. */
    uint32_t stage;
    uint32_t expected;
    uint32_t found;
} lutterfly_error;

#define LUTTERFLY_BODY 0xffffffffu

/* How the driver reaches the accelerator. Each function gets `context`, and returns 0, or a negative number if it
 * fails. Each must return in bounded time. */
typedef struct lutterfly_transport {
    void *context;
    /* The 32-bit register at `offset` bytes from the first one. */
    int (*read_register)(void *context, uint32_t offset, uint32_t *value);
    int (*write_register)(void *context, uint32_t offset, uint32_t value);
    /* `bytes` bytes of the arena, from `address` bytes behind its first on; in any alignment. With a data cache: what
     * is written must have reached the memory on return, and what is read must come from there. */
    int (*read_memory)(void *context, uint32_t address, void *data, uint32_t bytes);
    int (*write_memory)(void *context, uint32_t address, const void *data, uint32_t bytes);
    /* Wait until the accelerator's interrupt line is high, or `cycles` cycles of its clock have passed; returns 0 in
     * both cases. Without one (NULL) the driver polls STATUS as many times: a poll takes a cycle at least. */
    int (*wait)(void *context, uint32_t cycles);
} lutterfly_transport;

/* What `lutterfly export` writes of a program: constant, and never made by hand. Addresses are bytes in the arena. */
typedef struct lutterfly_block {
    uint32_t address;
    uint32_t bytes;
    const uint8_t *data;
} lutterfly_block;

/* What the queues of a core execute in one run. */
typedef struct lutterfly_queues {
    uint32_t dma_address;
    uint32_t dma_commands;
    uint32_t compute_address;
    uint32_t compute_commands;
} lutterfly_queues;

/* A run that loads some of the constants into the accelerator's own memories. */
typedef struct lutterfly_stage {
    const lutterfly_block *blocks;
    uint32_t block_count;
    /* One for each core. */
    const lutterfly_queues *queues;
} lutterfly_stage;

/* An input or an output: codes of a byte each, in the order of the ONNX tensor. */
typedef struct lutterfly_port {
    /* Name and shape of the ONNX tensor. */
    const char *name;
    const uint32_t *shape;
    uint32_t rank;
    /* Of the whole tensor, in your buffer. */
    uint32_t bytes;
    /* 1: uint8; 0: int8. */
    uint8_t is_unsigned;
    /* Of an element in the arena: 8, or 1 for a binary tensor of +1 and -1. */
    uint8_t bits;
    /* Where the accelerator has it, a share of the samples at each address: pixels of height times width, their
     * channels side by side. `strides` are those of height, width and channels in the ONNX tensor. */
    uint32_t height, width, channels;
    uint32_t strides[3];
    const uint32_t *addresses;
    uint32_t address_count;
} lutterfly_port;

typedef struct lutterfly_model {
    const char *name;
    /* The configuration that it was compiled for. */
    const char *config_name;
    uint32_t config_hash;
    uint32_t cores;
    /* Bytes of the arena that it needs. */
    uint32_t arena_bytes;
    /* Of one inference: predicted cycles, and the most that the driver waits for. */
    uint32_t predicted_cycles;
    uint32_t most_cycles;
    /* The prologue: once after loading, and after a reset. */
    const lutterfly_stage *stages;
    uint32_t stage_count;
    /* What every inference needs in the arena, and its commands, of each core. */
    const lutterfly_block *contents;
    uint32_t content_count;
    const lutterfly_queues *body;
    const lutterfly_port *inputs;
    uint32_t input_count;
    const lutterfly_port *outputs;
    uint32_t output_count;
} lutterfly_model;

/* One accelerator. Make it with lutterfly_open; only `watchdog_cycles` may be changed after that. */
typedef struct lutterfly_device {
    lutterfly_transport transport;
    /* The address on the accelerator's own bus of the arena's first byte: a multiple of 4096. */
    uint32_t arena_base;
    uint32_t arena_bytes;
    uint32_t config_hash;
    uint32_t cores;
    /* Cycles without progress after which a run stops; 0 turns the watchdog off. */
    uint32_t watchdog_cycles;
    /* Of the last run, from start to done, of the core that was last. */
    uint32_t cycles;
    lutterfly_error error;
    /* The driver's own: the current model; whether it is in arena and memories; what the registers of a run hold. */
    const lutterfly_model *model;
    const lutterfly_queues *queues;
    uint32_t queues_watchdog;
    uint8_t is_resident;
    uint8_t must_reset;
} lutterfly_device;

/* An array for an input or an output: int8_t or uint8_t, see the port. */
typedef struct lutterfly_input {
    const void *data;
    size_t bytes;
} lutterfly_input;

typedef struct lutterfly_output {
    void *data;
    size_t bytes;
} lutterfly_output;

/* Make `device` one for the hardware behind `transport` with an arena of so many bytes at this address, of the
 * configuration of `model`; check its identity, and reset it: nobody knows what it did before. */
lutterfly_status lutterfly_open(
    lutterfly_device *device, const lutterfly_transport *transport, uint32_t arena_base, uint32_t arena_bytes,
    const lutterfly_model *model);

/* Whether ID, VERSION and CONFIG_HASH are those that the device must have. */
lutterfly_status lutterfly_check_identity(lutterfly_device *device);

/* Bring the hardware back from whatever it does. The prologue runs again before the next inference. */
lutterfly_status lutterfly_reset(lutterfly_device *device);

/* Make `model` the current one: write it into the arena and run its prologue, a stage at a time. The model must stay
 * where it is as long as it is the current one. */
lutterfly_status lutterfly_load(lutterfly_device *device, const lutterfly_model *model);

/* Run one inference of the current model. Lengths are checked before anything is written. After an error the hardware
 * is reset and the model loaded again first. */
lutterfly_status lutterfly_infer(
    lutterfly_device *device, const lutterfly_input *inputs, size_t input_count, const lutterfly_output *outputs,
    size_t output_count);

/* Put what went wrong last into words. Like snprintf, writes at most `bytes` bytes, the last of which is 0, and returns
 * the length of the whole text. It is in lutterfly_text.c, which you may leave out with it. */
size_t lutterfly_error_text(const lutterfly_error *error, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
