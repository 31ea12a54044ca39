/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fake driver against CUDA's documented rules: copies, streams, capture, contexts.
 * Usage: fakes_work_drv CASES. fakes.sh says what stderr must have. No pinshim is involved.
 */
#include <pthread.h>

#include "fakes.h"

static bool all(const char *memory, size_t size, char value)
{
	for (size_t i = 0; i < size; i++)
		if (memory[i] != value)
			return false;
	return true;
}

static void copies(void)
{
	char *memory = pages(4), *plain = pages(4), *pinned;
	fake_cu_stream stream;
	fake_cu_event event;
	ps_cu_deviceptr device;

	start();
	DO(cuStreamCreate(&stream, 1));
	DO(cuEventCreate(&event, 0));
	DO(cuMemAlloc_v2(&device, 4 * PAGE));
	DO(cuMemHostAlloc((void **)&pinned, PAGE, 0));
	memset(plain, 'a', 4 * PAGE);
	DO(cuMemcpyHtoD_v2(device, plain, 4 * PAGE));
	memset(plain, 'b', 4 * PAGE);
	DO(cuMemcpyDtoH_v2(memory, device, 4 * PAGE));
	check(all(memory, 4 * PAGE, 'a'), "copies there and back are done at once");
	IS(1, cuMemcpyHtoD_v2(device, plain, 4 * PAGE + 1));
	IS(1, cuMemcpyHtoD_v2((uintptr_t)memory, plain, 1));
	IS(1, cuMemcpyDtoH_v2((void *)(uintptr_t)device, device, 1));

	DO(cuMemcpyHtoDAsync_v2(device, plain, PAGE, stream));
	memset(plain, 'c', PAGE);
	DO(cuStreamSynchronize(stream));
	DO(cuMemcpyDtoH_v2(memory, device, PAGE));
	check(all(memory, PAGE, 'b'), "from pageable memory: staged before the call returns");

	memset(pinned, 'd', PAGE);
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, stream));
	check(fake_cuda_pending() == 1, "from pinned memory: queued");
	memset(pinned, 'e', PAGE);
	DO(cuMemcpyDtoHAsync_v2(pinned, device, PAGE, stream));
	check(fake_cuda_pending() == 2 && all(pinned, PAGE, 'e'), "to pinned memory: queued");
	memset(pinned, 'f', PAGE);
	DO(cuEventRecord(event, stream));
	DO(cuEventSynchronize(event));
	check(fake_cuda_pending() == 0 && all(pinned, PAGE, 'f'),
	      "reuse before the copy is done gives wrong data");

	memset(pinned, 'g', PAGE);
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, stream));
	DO(cuMemcpyDtoHAsync_v2(plain, device, PAGE, stream));
	check(all(plain, PAGE, 'g'), "to pageable memory: complete when the call returns");
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, stream));
	DO(cuMemFreeHost(pinned));
	check(fake_cuda_pending() == 0, "freeing waits for the device");

	DO(cuMemHostRegister_v2(memory + PAGE, PAGE, 0));
	IS(1, cuMemcpyHtoD_v2(device, memory, 2 * PAGE));
	IS(1, cuMemcpyHtoD_v2(device, memory + PAGE, PAGE + 1));
	IS(1, cuMemcpyHtoDAsync_v2(device, memory, 3 * PAGE, stream));
	DO(cuMemHostRegister_v2(memory + 2 * PAGE, PAGE, 0));
	IS(1, cuMemcpyHtoD_v2(device, memory + PAGE, 2 * PAGE));
	DO(cuMemcpyHtoD_v2(device, memory + PAGE, PAGE));
	DO(cuMemcpyHtoD_v2(device, memory, PAGE));
	DO(cuMemcpyHtoDAsync_v2(device, memory + PAGE, PAGE, stream));
	DO(cuStreamDestroy_v2(stream));
	IS(400, cuStreamSynchronize(stream));
	check(fake_cuda_pending() == 1, "a destroyed stream's work remains");
	DO(cuMemHostUnregister(memory + PAGE));
	check(fake_cuda_pending() == 0, "unregistering waits for the device");
	DO(cuMemHostUnregister(memory + 2 * PAGE));
	DO(cuMemFree_v2(device));
}

static void order(void)
{
	char *pinned;
	fake_cu_stream a, b, free_stream;
	fake_cu_event event;
	ps_cu_deviceptr device;

	start();
	DO(cuStreamCreate(&a, 0));
	DO(cuStreamCreate(&b, 0));
	DO(cuStreamCreate(&free_stream, 1));
	DO(cuEventCreate(&event, 2));
	DO(cuMemAlloc_v2(&device, 6 * PAGE));
	DO(cuMemHostAlloc((void **)&pinned, 6 * PAGE, 0));
	DO(cuEventQuery(event));
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, a));
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, b));
	DO(cuStreamSynchronize(b));
	check(fake_cuda_pending() == 1, "a stream does not wait for another");
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, NULL));
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, free_stream));
	DO(cuStreamQuery(NULL));
	check(fake_cuda_pending() == 1, "the default stream waits for all but non-blocking ones");
	DO(cuStreamSynchronize(free_stream));
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, NULL));
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, a));
	DO(cuStreamSynchronize(a));
	check(fake_cuda_pending() == 0, "a stream waits for the default one");
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, a));
	DO(cuEventRecord(event, a));
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, a));
	DO(cuStreamWaitEvent(free_stream, event, 0));
	DO(cuStreamSynchronize(free_stream));
	check(fake_cuda_pending() == 1, "an event stands for what was queued before it");
	DO(cuCtxSynchronize());
	check(fake_cuda_pending() == 0, "synchronising a context does all");
	fake_cuda_fail("cuEventQuery", 1, 2, 600);
	DO(cuMemcpyHtoDAsync_v2(device, pinned, PAGE, a));
	DO(cuEventRecord(event, a));
	IS(600, cuEventQuery(event));
	IS(600, cuEventQuery(event));
	check(fake_cuda_pending() == 1, "a refused query carries nothing out");
	DO(cuEventQuery(event));
	check(fake_cuda_pending() == 0, "one that is not does");
	DO(cuEventDestroy_v2(event));
	IS(400, cuEventQuery(event));
	DO(cuMemFreeHost(pinned));
}

static void *other_context(void *context)
{
	check(cuCtxSetCurrent(context) == 0 && cuMemFreeHost(NULL) == 0,
	      "current to another thread");
	return NULL;
}

static void contexts(void)
{
	ps_cu_context primary, first, second, current = NULL;
	void *pointer, *memory = pages(1);
	unsigned flags;
	int active = 7;
	pthread_t thread;

	DO(cuInit(0));
	DO(cuCtxCreate_v2(&first, 0, 0));
	DO(cuCtxCreate_v2(&second, 0, 0));
	DO(cuCtxPopCurrent_v2(&current));
	check(current == second, "a new context is current");
	DO(cuMemHostAlloc(&pointer, 100, 1));
	DO(cuMemHostRegister_v2(memory, 100, 1));
	if (!pthread_create(&thread, NULL, other_context, first))
		pthread_join(thread, NULL);
	DO(cuCtxDestroy_v2(first));
	check(!fake_cuda_registrations() && !fake_cuda_allocations(),
	      "destroying a context frees its allocations and drops its registrations");
	IS(0, cuCtxGetCurrent(&current));
	check(!current, "and pops it");
	IS(201, cuMemFreeHost(NULL));
	IS(201, cuCtxPopCurrent_v2(NULL));
	DO(cuCtxPushCurrent_v2(second));
	IS(713, cuMemHostUnregister(memory));
	IS(1, cuMemFreeHost(pointer));
	DO(cuCtxDestroy(second));

	DO(cuDevicePrimaryCtxGetState(0, &flags, &active));
	check(active == 0, "the primary context is not active before it is retained");
	DO(cuDevicePrimaryCtxRetain(&primary, 0));
	DO(cuCtxSetCurrent(primary));
	DO(cuMemHostRegister_v2(memory, 100, 1));
	DO(cuDevicePrimaryCtxReset_v2(0));
	check(!fake_cuda_registrations(), "reset drops registrations");
	IS(709, cuMemHostRegister_v2(memory, 100, 1));
	DO(cuDevicePrimaryCtxRetain(&primary, 0));
	DO(cuMemHostRegister_v2(memory, 100, 1));
	DO(cuDevicePrimaryCtxRelease(0));
	check(fake_cuda_registrations() == 1, "a reference is left");
	DO(cuDevicePrimaryCtxRelease_v2(0));
	check(!fake_cuda_registrations(), "the last release resets");
	IS(709, cuCtxSynchronize());
}

static void stale_contexts(void)
{
	ps_cu_context context;

	DO(cuInit(0));
	DO(cuCtxCreate_v2(&context, 0, 0));
	DO(cuCtxDestroy_v2(context));
	IS(201, cuCtxDestroy_v2(context));
	IS(201, cuCtxSetCurrent(context));
	IS(201, cuDevicePrimaryCtxRelease_v2(0));
	check(fake_cuda_faults() == 3, "three faults");
}

static void two_devices(void)
{
	ps_cu_context first, second;
	ps_cu_device device = 7;
	int count = 7, ordinal = 7;
	void *pointer;

	DO(cuInit(0));
	DO(cuDeviceGetCount(&count));
	check(count == 2, "two devices");
	DO(cuDevicePrimaryCtxRetain(&first, 0));
	DO(cuDevicePrimaryCtxRetain(&second, 1));
	DO(cuCtxSetCurrent(second));
	DO(cuCtxGetDevice(&device));
	check(device == 1, "the second is current");
	DO(cuMemHostAlloc(&pointer, 100, 0));
	DO(cuPointerGetAttribute(&ordinal, 9, (uintptr_t)pointer));
	check(ordinal == 1, "memory is the device's that was current");
	DO(cuDevicePrimaryCtxReset_v2(0));
	check(fake_cuda_allocations() == 1, "resetting the other leaves it");
	DO(cuDevicePrimaryCtxReset_v2(1));
	check(fake_cuda_allocations() == 0, "resetting its own does not");
}

static void *alloc_result(void *out)
{
	ps_cu_context context;
	void *pointer;

	cuDevicePrimaryCtxRetain(&context, 0);
	cuCtxSetCurrent(context);
	*(int *)out = cuMemHostAlloc(&pointer, 100, 0);
	return NULL;
}

static int alloc_elsewhere(void)
{
	pthread_t thread;
	int result = -1;

	if (!pthread_create(&thread, NULL, alloc_result, &result))
		pthread_join(thread, NULL);
	return result;
}

static int status_of(fake_cu_stream stream)
{
	int status = -1;

	cuStreamIsCapturing(stream, &status);
	return status;
}

static void capture(void)
{
	fake_cu_stream stream;
	int mode = 2;
	void *pointer, *graph = NULL, *memory = pages(1);

	start();
	DO(cuStreamCreate(&stream, 1));
	IS(900, cuStreamBeginCapture_v2(NULL, 0));
	DO(cuStreamBeginCapture_v2(stream, 0));
	IS(1, status_of(stream));
	IS(900, cuMemHostAlloc(&pointer, 100, 0));
	IS(2, status_of(stream));
	IS(901, cuStreamEndCapture(stream, &graph));
	check(!graph && status_of(stream) == 0, "an invalidated capture ends without a graph");
	const char *const unsafe[] = { "register", "synchronise", "event query" };
	fake_cu_event event;
	DO(cuEventCreate(&event, 0));
	for (int i = 0; i < 3; i++) {
		DO(cuStreamBeginCapture_v2(stream, 0));
		check((i == 0   ? cuMemHostRegister_v2(memory, 100, 0)
		       : i == 1 ? cuCtxSynchronize()
				: cuEventQuery(event)) == 900,
		      "%s is prohibited during capture", unsafe[i]);
		IS(901, cuStreamEndCapture(stream, &graph));
	}
	DO(cuStreamBeginCapture_v2(stream, 0));
	IS(900, alloc_elsewhere());
	IS(901, cuStreamEndCapture(stream, &graph));
	DO(cuStreamBeginCapture_v2(stream, 0));
	DO(cuThreadExchangeStreamCaptureMode(&mode));
	check(mode == 0, "a thread's mode is global at first");
	DO(cuMemHostAlloc(&pointer, 100, 0));
	DO(cuMemFreeHost(pointer));
	DO(cuThreadExchangeStreamCaptureMode(&mode));
	check(mode == 2, "the mode was exchanged");
	DO(cuStreamEndCapture(stream, &graph));
	check(graph != NULL, "a relaxed thread invalidates nothing");
	DO(cuGraphDestroy(graph));
	DO(cuStreamBeginCapture_v2(stream, 1));
	DO(alloc_elsewhere());
	IS(900, cuMemHostAlloc(&pointer, 100, 0));
	IS(901, cuStreamEndCapture(stream, &graph));
	DO(cuStreamBeginCapture_v2(stream, 2));
	DO(cuMemHostAlloc(&pointer, 100, 0));
	IS(900, cuStreamSynchronize(stream));
	IS(901, cuStreamEndCapture(stream, &graph));
	mode = 7;
	IS(1, cuThreadExchangeStreamCaptureMode(&mode));
}

static void unmapped(void)
{
	char *memory = pages(4);
	ps_cu_deviceptr device;

	start();
	DO(cuMemAlloc_v2(&device, PAGE));
	DO(cuMemHostRegister_v2(memory, PAGE, 0));
	DO(cuMemHostRegister_v2(memory + PAGE, PAGE, 0));
	DO(cuMemHostRegister_v2(memory + 2 * PAGE, PAGE, 0));
	munmap(memory, 2 * PAGE);
	IS(1, cuMemcpyHtoD_v2(device, memory, PAGE));
	DO(cuMemHostUnregister(memory));
	DO(cuMemHostUnregister(memory + PAGE));
	check(fake_cuda_faults() == 2, "two faults");
	DO(cuMemcpyHtoDAsync_v2(device, memory + 2 * PAGE, PAGE, NULL));
	munmap(memory + 2 * PAGE, PAGE);
	IS(700, cuStreamSynchronize(NULL));
	check(fake_cuda_faults() == 4, "four with the queued copy"); /* and the last at exit */
}

static const struct cases cases[] = {
	{ "capture", capture },
	{ "contexts", contexts },
	{ "copies", copies },
	{ "order", order },
	{ "stale_contexts", stale_contexts },
	{ "two_devices", two_devices },
	{ "unmapped", unmapped },
};

int main(int count, char **argument)
{
	return run_named(cases, sizeof(cases) / sizeof(cases[0]), count, argument);
}
