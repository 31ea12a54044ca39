/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams, events, and capture. What is captured is checked and then dropped: there are no graphs to
 * launch. Capture matters here for what it prohibits meanwhile.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { NON_BLOCKING = 1 };
enum { CAPTURE_NONE = 0, CAPTURE_ACTIVE = 1, CAPTURE_INVALIDATED = 2 };

struct fake_stream {
	struct fake_stream *next;
	struct context *context;
	uint64_t id;
	bool blocking;
	int capture, capture_mode;
	pid_t capture_thread;
};

struct fake_event {
	struct fake_event *next;
	struct context *context; /* made in */
	struct context *stream_context;
	uint64_t stream, last; /* the work it marks: this stream's up to last */
	bool recorded, captured;
	struct timespec time;
};

static struct fake_stream *streams;
static struct fake_event *events;
static uint64_t last_id;
static _Thread_local int thread_mode; /* PS_CAPTURE_GLOBAL */

static const struct stream_place legacy = { .id = 0, .blocking = true };

/* cudaStreamLegacy, and cudaStreamPerThread: the fakes have no per-thread default streams. */
static bool is_default(fake_cu_stream stream)
{
	return (uintptr_t)stream <= 2;
}

static struct fake_stream *find(fake_cu_stream handle)
{
	struct fake_stream *stream = streams;

	while (stream && stream != handle)
		stream = stream->next;
	return stream;
}

static void invalidate(struct fake_stream *stream)
{
	if (stream->capture == CAPTURE_ACTIVE)
		stream->capture = CAPTURE_INVALIDATED;
}

int check_capture(void)
{
	int result = 0;

	if (thread_mode == PS_CAPTURE_RELAXED || !streams)
		return 0;
	for (struct fake_stream *stream = streams; stream; stream = stream->next) {
		bool mine;

		if (stream->capture == CAPTURE_NONE || stream->capture_mode == PS_CAPTURE_RELAXED)
			continue;
		mine = stream->capture_thread == gettid();
		if (mine || (thread_mode == PS_CAPTURE_GLOBAL &&
			     stream->capture_mode == PS_CAPTURE_GLOBAL)) {
			invalidate(stream);
			result = FAKE_CUDA_CAPTURE_UNSUPPORTED;
		}
	}
	return result;
}

int stream_place(fake_cu_stream handle, struct stream_place *place)
{
	struct fake_stream *stream;
	int result = 0;

	if (!is_default(handle)) {
		stream = find(handle);
		if (!stream)
			return FAKE_CUDA_INVALID_HANDLE;
		*place = (struct stream_place){
			.id = stream->id,
			.blocking = stream->blocking,
			.capturing = stream->capture != CAPTURE_NONE,
		};
		return stream->capture == CAPTURE_INVALIDATED ? FAKE_CUDA_CAPTURE_INVALIDATED : 0;
	}
	*place = legacy;
	/* The default stream would have to wait for them. */
	for (stream = streams; stream; stream = stream->next) {
		if (stream->capture == CAPTURE_NONE || !stream->blocking ||
		    stream->context != current_context())
			continue;
		invalidate(stream);
		result = FAKE_CUDA_CAPTURE_IMPLICIT;
	}
	return result;
}

void stream_drop_context(const struct context *context)
{
	for (struct fake_stream **link = &streams, *stream; (stream = *link);) {
		if (stream->context == context) {
			*link = stream->next;
			free(stream);
		} else {
			link = &stream->next;
		}
	}
	for (struct fake_event **link = &events, *event; (event = *link);) {
		if (event->context == context) {
			*link = event->next;
			free(event);
		} else {
			link = &event->next;
		}
	}
}

ps_cu_result cuStreamCreate(fake_cu_stream *out, unsigned flags)
{
	static struct call call = { .name = "cuStreamCreate" };
	int result = enter(&call, NEEDS_CONTEXT);
	struct fake_stream *stream = NULL;

	if (!result && (!out || (flags & ~1u)))
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !(stream = calloc(1, sizeof(*stream))))
		result = PS_CUDA_MEMORY_ALLOCATION;
	if (stream) {
		stream->context = current_context();
		stream->id = ++last_id;
		stream->blocking = !(flags & NON_BLOCKING);
		stream->next = streams;
		streams = stream;
		*out = stream;
	}
	return leave(&call, result, (uintptr_t)stream, 0, flags);
}

/* Work in it is still carried out. */
ps_cu_result cuStreamDestroy_v2(fake_cu_stream handle)
{
	static struct call call = { .name = "cuStreamDestroy_v2" };
	int result = enter(&call, 0);
	struct fake_stream **link = &streams;

	if (!result) {
		while (*link && *link != handle)
			link = &(*link)->next;
		if (!*link) {
			result = FAKE_CUDA_INVALID_HANDLE;
		} else {
			*link = handle->next;
			free(handle);
		}
	}
	return leave(&call, result, (uintptr_t)handle, 0, 0);
}

static int finish_handle(fake_cu_stream handle)
{
	struct stream_place place;
	int result = stream_place(handle, &place);
	struct fake_stream *stream;

	if (result)
		return result;
	stream = is_default(handle) ? NULL : find(handle);
	if (stream && place.capturing) {
		invalidate(stream);
		return FAKE_CUDA_CAPTURE_UNSUPPORTED;
	}
	finish_stream(stream ? stream->context : current_context(), place.id, last_queued());
	return copy_error();
}

ps_cu_result cuStreamSynchronize(fake_cu_stream stream)
{
	static struct call call = { .name = "cuStreamSynchronize" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result)
		result = finish_handle(stream);
	return leave(&call, result, (uintptr_t)stream, 0, 0);
}

/* Carries out the work and says that it is done; fake_cuda_fail with 600 for one that takes longer. */
ps_cu_result cuStreamQuery(fake_cu_stream stream)
{
	static struct call call = { .name = "cuStreamQuery" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result)
		result = finish_handle(stream);
	return leave(&call, result, (uintptr_t)stream, 0, 0);
}

static struct fake_event *find_event(fake_cu_event handle)
{
	struct fake_event *event = events;

	while (event && event != handle)
		event = event->next;
	return event;
}

ps_cu_result cuEventCreate(fake_cu_event *out, unsigned flags)
{
	static struct call call = { .name = "cuEventCreate" };
	int result = enter(&call, NEEDS_CONTEXT);
	struct fake_event *event = NULL;

	if (!result && (!out || (flags & ~7u)))
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !(event = calloc(1, sizeof(*event))))
		result = PS_CUDA_MEMORY_ALLOCATION;
	if (event) {
		event->context = current_context();
		event->next = events;
		events = event;
		*out = event;
	}
	return leave(&call, result, (uintptr_t)event, 0, flags);
}

ps_cu_result cuEventDestroy_v2(fake_cu_event handle)
{
	static struct call call = { .name = "cuEventDestroy_v2" };
	int result = enter(&call, 0);
	struct fake_event **link = &events;

	if (!result) {
		while (*link && *link != handle)
			link = &(*link)->next;
		if (!*link) {
			result = FAKE_CUDA_INVALID_HANDLE;
		} else {
			*link = handle->next;
			free(handle);
		}
	}
	return leave(&call, result, (uintptr_t)handle, 0, 0);
}

static int record(fake_cu_event handle, fake_cu_stream stream)
{
	struct fake_event *event = find_event(handle);
	struct stream_place place;
	int result = stream_place(stream, &place);

	if (!event)
		return FAKE_CUDA_INVALID_HANDLE;
	if (result)
		return result;
	event->stream_context = is_default(stream) ? current_context() : find(stream)->context;
	event->stream = place.id;
	event->last = last_queued();
	event->recorded = !place.capturing;
	event->captured = place.capturing;
	clock_gettime(CLOCK_MONOTONIC, &event->time);
	return 0;
}

ps_cu_result cuEventRecord(fake_cu_event event, fake_cu_stream stream)
{
	static struct call call = { .name = "cuEventRecord" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result)
		result = record(event, stream);
	return leave(&call, result, (uintptr_t)event, 0, 0);
}

/* An event that was never recorded is complete. */
static int finish_event(fake_cu_event handle)
{
	const struct fake_event *event = find_event(handle);

	if (!event)
		return FAKE_CUDA_INVALID_HANDLE;
	if (event->captured)
		return FAKE_CUDA_CAPTURED_EVENT;
	if (event->recorded)
		finish_stream(event->stream_context, event->stream, event->last);
	return copy_error();
}

ps_cu_result cuEventQuery(fake_cu_event event)
{
	static struct call call = { .name = "cuEventQuery" };
	int result = enter(&call, UNSAFE);

	if (!result)
		result = finish_event(event);
	return leave(&call, result, (uintptr_t)event, 0, 0);
}

ps_cu_result cuEventSynchronize(fake_cu_event event)
{
	static struct call call = { .name = "cuEventSynchronize" };
	int result = enter(&call, UNSAFE);

	if (!result)
		result = finish_event(event);
	return leave(&call, result, (uintptr_t)event, 0, 0);
}

ps_cu_result cuEventElapsedTime(float *milliseconds, fake_cu_event start, fake_cu_event end)
{
	static struct call call = { .name = "cuEventElapsedTime" };
	int result = enter(&call, 0);

	if (!result && !milliseconds)
		result = PS_CUDA_INVALID_VALUE;
	if (!result &&
	    (!find_event(start) || !find_event(end) || !start->recorded || !end->recorded))
		result = FAKE_CUDA_INVALID_HANDLE;
	if (!result)
		*milliseconds = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
				(float)(end->time.tv_nsec - start->time.tv_nsec) / 1e6f;
	return leave(&call, result, (uintptr_t)start, 0, 0);
}

static int wait_for(fake_cu_stream stream, fake_cu_event handle)
{
	const struct fake_event *event = find_event(handle);
	struct stream_place place;
	int result = stream_place(stream, &place);

	if (!event)
		return FAKE_CUDA_INVALID_HANDLE;
	if (result || place.capturing || !event->recorded)
		return result;
	return queue_wait(is_default(stream) ? current_context() : find(stream)->context, place.id,
			  place.blocking, event->stream_context, event->stream, event->last);
}

ps_cu_result cuStreamWaitEvent(fake_cu_stream stream, fake_cu_event event, unsigned flags)
{
	static struct call call = { .name = "cuStreamWaitEvent" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result)
		result = wait_for(stream, event);
	return leave(&call, result, (uintptr_t)stream, 0, flags);
}

static int begin(fake_cu_stream handle, int mode)
{
	struct fake_stream *stream = is_default(handle) ? NULL : find(handle);

	if (is_default(handle))
		return FAKE_CUDA_CAPTURE_UNSUPPORTED;
	if (!stream)
		return FAKE_CUDA_INVALID_HANDLE;
	if (mode < PS_CAPTURE_GLOBAL || mode > PS_CAPTURE_RELAXED ||
	    stream->capture != CAPTURE_NONE)
		return PS_CUDA_INVALID_VALUE;
	stream->capture = CAPTURE_ACTIVE;
	stream->capture_mode = mode;
	stream->capture_thread = gettid();
	return 0;
}

ps_cu_result cuStreamBeginCapture_v2(fake_cu_stream stream, int mode)
{
	static struct call call = { .name = "cuStreamBeginCapture_v2" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result)
		result = begin(stream, mode);
	return leave(&call, result, (uintptr_t)stream, 0, (unsigned)mode);
}

static int end(fake_cu_stream handle, void **graph)
{
	static char a_graph;
	struct fake_stream *stream = is_default(handle) ? NULL : find(handle);
	bool invalid;

	if (!stream)
		return FAKE_CUDA_INVALID_HANDLE;
	if (stream->capture == CAPTURE_NONE || !graph)
		return PS_CUDA_INVALID_VALUE;
	*graph = NULL;
	if (stream->capture_mode != PS_CAPTURE_RELAXED && stream->capture_thread != gettid())
		return FAKE_CUDA_CAPTURE_WRONG_THREAD;
	invalid = stream->capture == CAPTURE_INVALIDATED;
	stream->capture = CAPTURE_NONE;
	if (invalid)
		return FAKE_CUDA_CAPTURE_INVALIDATED;
	*graph = &a_graph;
	return 0;
}

ps_cu_result cuStreamEndCapture(fake_cu_stream stream, void **graph)
{
	static struct call call = { .name = "cuStreamEndCapture" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result)
		result = end(stream, graph);
	return leave(&call, result, (uintptr_t)stream, 0, 0);
}

ps_cu_result cuStreamIsCapturing(fake_cu_stream handle, int *status)
{
	static struct call call = { .name = "cuStreamIsCapturing" };
	int result = enter(&call, NEEDS_CONTEXT);
	const struct fake_stream *stream = is_default(handle) ? NULL : find(handle);

	if (!result && !status)
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !is_default(handle) && !stream)
		result = FAKE_CUDA_INVALID_HANDLE;
	if (!result)
		*status = stream ? stream->capture : CAPTURE_NONE;
	return leave(&call, result, (uintptr_t)handle, 0, 0);
}

ps_cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
	static struct call call = { .name = "cuThreadExchangeStreamCaptureMode" };
	int result = enter(&call, 0);
	int asked = 0;

	if (!result && (!mode || *mode < PS_CAPTURE_GLOBAL || *mode > PS_CAPTURE_RELAXED))
		result = PS_CUDA_INVALID_VALUE;
	if (!result) {
		asked = *mode;
		*mode = thread_mode;
		thread_mode = asked;
	}
	return leave(&call, result, 0, 0, (unsigned)asked);
}

ps_cu_result cuGraphDestroy(void *graph)
{
	static struct call call = { .name = "cuGraphDestroy" };
	int result = enter(&call, 0);

	if (!result && !graph)
		result = PS_CUDA_INVALID_VALUE;
	return leave(&call, result, (uintptr_t)graph, 0, 0);
}
