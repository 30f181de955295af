// The C driver with one device, for ctypes: the model's header is named by MODEL_HEADER, the model by MODEL.
#include MODEL_HEADER

static lutterfly_device device;

int shim_open(const lutterfly_transport *transport, uint32_t base, uint32_t bytes) {
    return lutterfly_open(&device, transport, base, bytes, &MODEL);
}
int shim_load(void) { return lutterfly_load(&device, &MODEL); }
int shim_load_other(uint32_t config_hash, uint32_t cores) {
    static lutterfly_model other;
    other = MODEL;
    other.config_hash = config_hash;
    other.cores = cores;
    return lutterfly_load(&device, &other);
}
int shim_reset(void) { return lutterfly_reset(&device); }
int shim_check_identity(void) { return lutterfly_check_identity(&device); }
int shim_infer(const lutterfly_input *inputs, size_t input_count, const lutterfly_output *outputs, size_t output_count) {
    return lutterfly_infer(&device, inputs, input_count, outputs, output_count);
}
void shim_set_watchdog(uint32_t cycles) { device.watchdog_cycles = cycles; }
uint32_t shim_cycles(void) { return device.cycles; }
lutterfly_error *shim_error(void) { return &device.error; }
const lutterfly_model *shim_model(void) { return &MODEL; }
