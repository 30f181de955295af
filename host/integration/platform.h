/* What main.c needs of your system.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PLATFORM_H
#define PLATFORM_H

#include "lutterfly.h"

/* How the accelerator is reached, and where its arena is on its bus; returns 0, or another number if it fails. */
int platform_open(lutterfly_transport *transport, uint32_t *arena_base, uint32_t *arena_bytes);

/* Fill an input of the next inference; returns 0 if there is none. */
int platform_input(uint32_t index, void *data, uint32_t bytes);

/* Take an output of the last inference. */
void platform_output(uint32_t index, const void *data, uint32_t bytes);

/* Show what went wrong. */
void platform_error(const char *text);

#endif
