/* Inferences of $name on the accelerator of platform.c, until that has no more inputs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "$name.h"
#include "lutterfly.h"
#include "platform.h"

static uint8_t input_bytes[${NAME}_INPUT_BYTES], output_bytes[${NAME}_OUTPUT_BYTES];
static lutterfly_input inputs[${NAME}_INPUTS];
static lutterfly_output outputs[${NAME}_OUTPUTS];

static int failed(const lutterfly_device *device) {
    char text[256];
    lutterfly_error_text(&device->error, text, sizeof text);
    platform_error(text);
    return 1;
}

int main(void) {
    static lutterfly_device device;
    lutterfly_transport transport;
    uint32_t index, arena_base, arena_bytes;
    uint8_t *place = input_bytes;

    for (index = 0; index < ${NAME}_INPUTS; ++index) {
        inputs[index].data = place;
        inputs[index].bytes = $name.inputs[index].bytes;
        place += $name.inputs[index].bytes;
    }
    place = output_bytes;
    for (index = 0; index < ${NAME}_OUTPUTS; ++index) {
        outputs[index].data = place;
        outputs[index].bytes = $name.outputs[index].bytes;
        place += $name.outputs[index].bytes;
    }

    if (platform_open(&transport, &arena_base, &arena_bytes) != 0) return 1;
    if (lutterfly_open(&device, &transport, arena_base, arena_bytes, &$name) != LUTTERFLY_OK) return failed(&device);
    if (lutterfly_load(&device, &$name) != LUTTERFLY_OK) return failed(&device);
    for (;;) {
        place = input_bytes;
        for (index = 0; index < ${NAME}_INPUTS; ++index) {
            if (!platform_input(index, place, $name.inputs[index].bytes)) return 0;
            place += $name.inputs[index].bytes;
        }
        if (lutterfly_infer(&device, inputs, ${NAME}_INPUTS, outputs, ${NAME}_OUTPUTS) != LUTTERFLY_OK)
            return failed(&device);
        for (index = 0; index < ${NAME}_OUTPUTS; ++index)
            platform_output(index, outputs[index].data, $name.outputs[index].bytes);
    }
}
