// main.c's platform: the simulator's library, which SIMULATOR names. Inputs come from inputs.bin, one inference after the
// other; outputs go to outputs.bin, and what went wrong to standard output.
#include "platform.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BASE 0x40000000u
#define FUNCTION(result, name, ...) static result (*name)(__VA_ARGS__)

FUNCTION(void *, create, uint64_t, uint64_t);
FUNCTION(void, configure, void *, const void *, int);
FUNCTION(uint8_t *, arena, void *);
FUNCTION(int, run, void *, uint64_t, int, const uint64_t *);
FUNCTION(int, read_hardware, void *, uint32_t, uint32_t *);
FUNCTION(int, write_hardware, void *, uint32_t, uint32_t);

static FILE *inputs, *outputs;
static uint32_t arena_size;

static void load(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    if (found == NULL) abort();
    memcpy(function, &found, sizeof found);
}

static int read_register(void *context, uint32_t offset, uint32_t *value) { return -read_hardware(context, offset, value); }
static int write_register(void *context, uint32_t offset, uint32_t value) {
    return -write_hardware(context, offset, value);
}
static int read_memory(void *context, uint32_t address, void *data, uint32_t bytes) {
    if (address > arena_size || bytes > arena_size - address) return -100;
    memcpy(data, arena(context) + address, bytes);
    return 0;
}
static int write_memory(void *context, uint32_t address, const void *data, uint32_t bytes) {
    if (address > arena_size || bytes > arena_size - address) return -100;
    memcpy(arena(context) + address, data, bytes);
    return 0;
}
static int wait(void *context, uint32_t cycles) {
    const uint64_t never[8] = {0};
    return run(context, cycles, 1, never) == 3 ? -101 : 0;
}

int platform_open(lutterfly_transport *transport, uint32_t *arena_base, uint32_t *arena_bytes) {
    void *library = dlopen(getenv("SIMULATOR"), RTLD_NOW | RTLD_LOCAL);
    FILE *file = fopen("settings.bin", "rb");
    uint8_t settings[256];
    if (library == NULL || file == NULL || fread(settings, 1, sizeof settings, file) == 0) return -1;
    fclose(file);
    load(library, "lutterfly_create", &create);
    load(library, "lutterfly_configure", &configure);
    load(library, "lutterfly_arena", &arena);
    load(library, "lutterfly_run", &run);
    load(library, "lutterfly_read_register", &read_hardware);
    load(library, "lutterfly_write_register", &write_hardware);
    arena_size = (uint32_t)atoi(getenv("ARENA_BYTES"));
    transport->context = create(ARENA_BASE, arena_size);
    transport->read_register = read_register;
    transport->write_register = write_register;
    transport->read_memory = read_memory;
    transport->write_memory = write_memory;
    transport->wait = getenv("POLLS") == NULL ? wait : NULL;
    configure(transport->context, settings, -1);
    inputs = fopen("inputs.bin", "rb");
    outputs = fopen("outputs.bin", "wb");
    *arena_base = ARENA_BASE;
    *arena_bytes = arena_size;
    return inputs == NULL || outputs == NULL;
}

int platform_input(uint32_t index, void *data, uint32_t bytes) {
    (void)index;
    return fread(data, 1, bytes, inputs) == bytes;
}

void platform_output(uint32_t index, const void *data, uint32_t bytes) {
    (void)index;
    fwrite(data, 1, bytes, outputs);
    fflush(outputs);
}

void platform_error(const char *text) { printf("%s\n", text); }
