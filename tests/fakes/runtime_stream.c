/* SPDX-License-Identifier: BSD-2-Clause */
/* The runtime's streams and events: each call is one of the driver's. */
#include "runtime.h"

/* name(parameters) is the driver's function with arguments. */
#define FORWARD(name, parameters, function, ...)                                                   \
	ps_cuda_error name parameters                                                              \
	{                                                                                          \
		int result = begin_in_context(#name);                                              \
                                                                                                   \
		return finish(result ? result : driver.function(__VA_ARGS__));                     \
	}

FORWARD(cudaStreamCreate, (fake_cu_stream * stream), cuStreamCreate, stream, 0)
FORWARD(cudaStreamCreateWithFlags, (fake_cu_stream * stream, unsigned flags), cuStreamCreate,
	stream, flags)
FORWARD(cudaStreamDestroy, (fake_cu_stream stream), cuStreamDestroy_v2, stream)
FORWARD(cudaStreamSynchronize, (fake_cu_stream stream), cuStreamSynchronize, stream)
FORWARD(cudaStreamQuery, (fake_cu_stream stream), cuStreamQuery, stream)
FORWARD(cudaStreamWaitEvent, (fake_cu_stream stream, fake_cu_event event, unsigned flags),
	cuStreamWaitEvent, stream, event, flags)
FORWARD(cudaStreamBeginCapture, (fake_cu_stream stream, int mode), cuStreamBeginCapture_v2, stream,
	mode)
FORWARD(cudaStreamEndCapture, (fake_cu_stream stream, void **graph), cuStreamEndCapture, stream,
	graph)
FORWARD(cudaStreamIsCapturing, (fake_cu_stream stream, int *status), cuStreamIsCapturing, stream,
	status)
FORWARD(cudaThreadExchangeStreamCaptureMode, (int *mode), cuThreadExchangeStreamCaptureMode, mode)
FORWARD(cudaGraphDestroy, (void *graph), cuGraphDestroy, graph)
FORWARD(cudaEventCreate, (fake_cu_event * event), cuEventCreate, event, 0)
FORWARD(cudaEventCreateWithFlags, (fake_cu_event * event, unsigned flags), cuEventCreate, event,
	flags)
FORWARD(cudaEventDestroy, (fake_cu_event event), cuEventDestroy_v2, event)
FORWARD(cudaEventRecord, (fake_cu_event event, fake_cu_stream stream), cuEventRecord, event, stream)
FORWARD(cudaEventQuery, (fake_cu_event event), cuEventQuery, event)
FORWARD(cudaEventSynchronize, (fake_cu_event event), cuEventSynchronize, event)
FORWARD(cudaEventElapsedTime, (float *milliseconds, fake_cu_event start, fake_cu_event end),
	cuEventElapsedTime, milliseconds, start, end)
