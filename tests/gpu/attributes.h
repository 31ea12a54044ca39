/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_GPU_ATTRIBUTES_H
#define TEST_GPU_ATTRIBUTES_H
/* cudaPointerGetAttributes as one answer. */
#include "gpu.h"

#define ATTRIBUTES_PINNED "0 type=1 device=0 devicePointer=same hostPointer=same"
#define ATTRIBUTES_NONE "0 type=0 device=-2 devicePointer=NULL hostPointer=same"

static inline void attributes(const char *question, const char *expected, const void *pointer)
{
	/* CUDA 13 has eight reserved words at the end of it. */
	union {
		struct ps_pointer_attributes is;
		long room[24];
	} of = { .is = { .type = -1, .device = -1 } };
	const int r = cudaPointerGetAttributes(&of.is, pointer);

	if (r)
		text(question, expected, "%d", r);
	else
		text(question, expected, "0 type=%d device=%d devicePointer=%s hostPointer=%s",
		     of.is.type, of.is.device, seen(of.is.device_pointer, pointer),
		     seen(of.is.host_pointer, pointer));
	if (r)
		cudaGetLastError();
}

#endif
