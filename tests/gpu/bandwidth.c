/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies to and from the device, one measurement for each line on stdin, so that scripts/gpu-check
 * can take turns between processes. Usage: bandwidth TOTAL SIZE...
 *
 *	in:  cudaHostAlloc|mlock|pageable SIZE h2d|d2h
 *	out: GB/s (10^9), of as many copies as make TOTAL bytes; or "error: ..."
 *
 * Each kind and size has one buffer, made when it is first asked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "gpu.h"

#define KINDS 3
#define SIZES 8

static const char *const kind_name[KINDS] = { "cudaHostAlloc", "mlock", "pageable" };
static char *buffers[KINDS][SIZES];
static size_t sizes[SIZES];
static unsigned size_count;
static void *device;
static fake_cu_stream stream;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* NULL with what is wrong in *why. */
static char *make(unsigned kind, size_t size, const char **why)
{
	void *memory = NULL;

	*why = "no memory";
	if (kind == 0) {
		*why = "cudaHostAlloc failed";
		return cudaHostAlloc(&memory, size, 0) ? NULL : memset(memory, 1, size);
	}
	if (posix_memalign(&memory, PAGE, size))
		return NULL;
	memset(memory, 1, size);
	if (kind == 1 && mlock(memory, size)) {
		*why = strerror(errno);
		free(memory);
		return NULL;
	}
	return memory;
}

/* The copies of one measurement; 0 or CUDA's error. */
static int copy(char *host, size_t size, bool to_device, size_t total, double *seconds)
{
	double began = now();
	int r = 0;

	for (size_t done = 0; done < total && !r; done += size)
		r = to_device ? cudaMemcpyAsync(device, host, size, FAKE_HOST_TO_DEVICE, stream)
			      : cudaMemcpyAsync(host, device, size, FAKE_DEVICE_TO_HOST, stream);
	r = r ? r : cudaStreamSynchronize(stream);
	*seconds = now() - began;
	return r;
}

static void measure(unsigned kind, unsigned size, bool to_device, size_t total)
{
	const size_t copies = (total + sizes[size] - 1) / sizes[size];
	char **buffer = &buffers[kind][size];
	const char *why;
	double seconds;
	int r;

	if (!*buffer) {
		*buffer = make(kind, sizes[size], &why);
		if (!*buffer) {
			printf("error: %s\n", why);
			return;
		}
		copy(*buffer, sizes[size], to_device, sizes[size], &seconds);
	}
	r = copy(*buffer, sizes[size], to_device, total, &seconds);
	if (r)
		printf("error: a copy failed with %d\n", r);
	else
		printf("%.3f\n", (double)(copies * sizes[size]) / seconds / 1e9);
}

int main(int arguments, char **argument)
{
	const size_t total = arguments > 1 ? strtoull(argument[1], NULL, 0) : 0;
	char line[128], kind[32], way[8];
	size_t size, largest = 0;

	for (int i = 2; i < arguments && size_count < SIZES; i++) {
		sizes[size_count] = strtoull(argument[i], NULL, 0);
		largest = sizes[size_count] > largest ? sizes[size_count] : largest;
		size_count++;
	}
	if (!total || cudaMalloc(&device, largest) || cudaStreamCreate(&stream))
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		unsigned k = 0, s = 0;

		if (sscanf(line, "%31s %zu %7s", kind, &size, way) != 3)
			return 2;
		while (k < KINDS && strcmp(kind, kind_name[k]))
			k++;
		while (s < size_count && size != sizes[s])
			s++;
		if (k == KINDS || s == size_count)
			return 2;
		measure(k, s, !strcmp(way, "h2d"), total);
		fflush(stdout);
	}
	return 0;
}
