/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What look-ups of CUDA's functions answer. Usage: lookup_hooks hooked|real DIRECTORY
 *
 * Says whether they are to be ours. DIRECTORY has what lookup_cuda.sh built.
 */
#include <errno.h>
#include <pthread.h>

#include "../preload/check.h"
#include "lookup.h"
#include "lookup_names.h"

#define OURS "libpinshim.so"
#define COUNT(names) (sizeof(names) / sizeof(*(names)))

typedef int proc_address(const char *, void **, int, unsigned long long);
typedef int proc_address_v2(const char *, void **, int, unsigned long long, int *);

/* Of lookup_early.c, where the program is linked with it. */
extern void *early_next __attribute__((weak)), *early_default __attribute__((weak));
extern void *early_handle __attribute__((weak)), *early_driver __attribute__((weak));
extern void *early_missing __attribute__((weak));
extern int early_started __attribute__((weak));

static const char *const driver_hooks[] = { DRIVER_HOOKS(NAME_ENTRY) "cuGetProcAddress",
					    "cuGetProcAddress_v2" };
static const char *const driver_others[] = { DRIVER_OTHERS(NAME_ENTRY) };
static const char *const runtime_hooks[] = { RUNTIME_HOOKS(NAME_ENTRY) };
static const char *const runtime_others[] = { RUNTIME_OTHERS(NAME_ENTRY) };
static bool hooked;
static const char *directory;

static void *open_library(const char *name, int mode)
{
	char path[512];
	void *handle;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	handle = dlopen(path, mode);
	if (handle == NULL)
		check(false, "%s is opened: %s", name, dlerror());
	return handle;
}

/* How many of the names are in the library; each that is not is named. */
static bool all_in(void *handle, const char *const *names, size_t count, const char *library)
{
	bool good = true;

	for (size_t i = 0; i < count; i++) {
		void *found = dlsym(handle, names[i]);

		if (!is_in(found, library) || dlerror() != NULL) {
			say("# %s is in %s\n", names[i], library_of(found));
			good = false;
		}
	}
	return good;
}

static void check_library(const char *name, int mode, bool ours)
{
	void *handle = open_library(name, mode);

	if (dlsym(handle, "cuInit") != NULL) {
		check(all_in(handle, driver_hooks, COUNT(driver_hooks), ours ? OURS : name),
		      "%s: the functions for host memory are %s", name, ours ? "ours" : "its own");
		check(all_in(handle, driver_others, COUNT(driver_others), name),
		      "%s: the others are its own", name);
	}
	if (dlsym(handle, "cudaMalloc") != NULL) {
		check(all_in(handle, runtime_hooks, COUNT(runtime_hooks), ours ? OURS : name),
		      "%s: the functions of the runtime are %s", name, ours ? "ours" : "its own");
		check(all_in(handle, runtime_others, COUNT(runtime_others), name),
		      "%s: its others are its own", name);
	}
	dlerror();
	check(dlsym(handle, "cuMemHostNone") == NULL, "%s: a name that is missing is", name);
	check(strstr(dlerror(), "undefined symbol: cuMemHostNone") != NULL, "%s: and is said to be",
	      name);
	errno = 77;
	dlsym(handle, "cuMemHostAlloc");
	check(errno == 77, "%s: errno stays", name);
}

/* What a function of the driver is asked for by, and which one it is. */
struct request {
	const char *name;
	int version;
	const char *is;
	int result;
};

static const struct request requests[] = {
	{ "cuMemAllocHost", 2000, "cuMemAllocHost", 0 },
	{ "cuMemAllocHost", 3010, "cuMemAllocHost", 0 },
	{ "cuMemAllocHost", 3020, "cuMemAllocHost_v2", 0 },
	{ "cuMemAllocHost", 13000, "cuMemAllocHost_v2", 0 },
	{ "cuMemHostAlloc", 2020, "cuMemHostAlloc", 0 },
	{ "cuMemHostAlloc", 13000, "cuMemHostAlloc", 0 },
	{ "cuMemFreeHost", 2000, "cuMemFreeHost", 0 },
	{ "cuMemHostGetFlags", 2030, "cuMemHostGetFlags", 0 },
	{ "cuMemHostGetDevicePointer", 3010, "cuMemHostGetDevicePointer", 0 },
	{ "cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2", 0 },
	{ "cuMemHostRegister", 4000, "cuMemHostRegister", 0 },
	{ "cuMemHostRegister", 6000, "cuMemHostRegister", 0 },
	{ "cuMemHostRegister", 6050, "cuMemHostRegister_v2", 0 },
	{ "cuMemHostUnregister", 4000, "cuMemHostUnregister", 0 },
	{ "cuPointerGetAttribute", 4000, "cuPointerGetAttribute", 0 },
	{ "cuPointerGetAttributes", 7000, "cuPointerGetAttributes", 0 },
	{ "cuCtxDestroy", 3020, "cuCtxDestroy", 0 },
	{ "cuCtxDestroy", 4000, "cuCtxDestroy_v2", 0 },
	{ "cuDevicePrimaryCtxRelease", 10020, "cuDevicePrimaryCtxRelease", 0 },
	{ "cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2", 0 },
	{ "cuDevicePrimaryCtxReset", 10020, "cuDevicePrimaryCtxReset", 0 },
	{ "cuDevicePrimaryCtxReset", 12080, "cuDevicePrimaryCtxReset_v2", 0 },
	{ "cuGetProcAddress", 11080, "cuGetProcAddress", 0 },
	{ "cuGetProcAddress", 12000, "cuGetProcAddress_v2", 0 },
};

static void check_requests(proc_address *v1, proc_address_v2 *v2, void *driver, const char *way)
{
	bool good_v1 = true, good_v2 = true;

	for (size_t i = 0; i < COUNT(requests); i++) {
		const struct request *request = &requests[i];
		void *expected = dlsym(driver, request->is), *found = NULL;
		int status = -1, result;

		result = v2(request->name, &found, request->version, 0, &status);
		if (result != 0 || status != 0 || found != expected) {
			say("# %s %d: result %d status %d\n", request->name, request->version,
			    result, status);
			good_v2 = false;
		}
		found = NULL;
		result = v2(request->name, &found, request->version, 0, NULL);
		good_v2 &= result == 0 && found == expected;
		found = NULL;
		result = v1(request->name, &found, request->version, 0);
		if (result != 0 || found != expected) {
			say("# %s %d: result %d\n", request->name, request->version, result);
			good_v1 = false;
		}
	}
	check(good_v2, "%s: cuGetProcAddress_v2 tells variants by version", way);
	check(good_v1, "%s: cuGetProcAddress too", way);
}

/* The answers of the real function that must come through as they are. */
static void check_refusals(proc_address *v1, proc_address_v2 *v2, void *driver, const char *way)
{
	int *refuse = dlsym(driver, "lookup_cuda_refuse"), status = 77;
	void *real, *found = &status;

	check(v2("", &found, 0, 0, NULL) == 0 && found == NULL, "%s: an empty name", way);
	found = &status;
	check(v1("", &found, 0, 0) == 500 && found == &status, "%s: an empty name, v1", way);
	check(v2("cuMemHostAlloc", &found, 2000, 0, &status) == 0 && found == NULL && status == 2,
	      "%s: a version that is too low", way);
	check(v2("cuMemAllocHost_v2", &found, 12000, 0, &status) == 0 && found == NULL &&
		      status == 1,
	      "%s: a name with a suffix is not found", way);
	check(v2(NULL, &found, 12000, 0, &status) == 1, "%s: a name that is NULL", way);
	check(v1(NULL, &found, 12000, 0) == 1, "%s: a name that is NULL, v1", way);
	check(v2("cuMemHostAlloc", NULL, 12000, 0, &status) == 1, "%s: an address that is NULL",
	      way);
	check(v1("cuMemHostAlloc", NULL, 12000, 0) == 1, "%s: an address that is NULL, v1", way);
	check(v2("cuInit", &found, 12000, 0, &status) == 0 && found == dlsym(driver, "cuInit"),
	      "%s: other functions are the driver's", way);
	*refuse = 999;
	found = NULL;
	v2("cuMemHostAlloc", &real, 12000, 0, &status);
	check(v2("cuMemHostAlloc", &found, 12000, 0, &status) == 999 && found == real &&
		      !is_in(found, OURS),
	      "%s: nothing is replaced in an answer that is an error", way);
	*refuse = 0;
}

static void check_proc_address(int mode, const char *way)
{
	void *driver = open_library("libcuda.so.1", mode);
	proc_address_v2 *v2;
	proc_address *v1;

	*(void **)&v1 = dlsym(driver, "cuGetProcAddress");
	*(void **)&v2 = dlsym(driver, "cuGetProcAddress_v2");
	check_requests(v1, v2, driver, way);
	check_refusals(v1, v2, driver, way);
	if (!hooked)
		return;
	/* As a program that is linked to the driver, and as static cudart from its own answer. */
	*(void **)&v2 = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
	*(void **)&v1 = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
	check(is_in(*(void **)&v2, OURS) && is_in(*(void **)&v1, OURS), "%s: exported", way);
	check_requests(v1, v2, driver, "exported");
}

/* Looks up in one of four threads, over and over. */
static void *look_up(void *argument)
{
	void *driver = open_library("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *libc = dlopen("libc.so.6", RTLD_NOW), *hook = dlsym(driver, "cuMemHostAlloc");
	void *other = dlsym(driver, "cuInit"), *plain = dlsym(libc, "getlogin");

	if (hook == NULL || other == NULL || plain == NULL)
		return NULL;
	for (int i = 0; i < 5000; i++)
		if (dlsym(driver, "cuMemHostAlloc") != hook || dlsym(driver, "cuInit") != other ||
		    dlsym(libc, "getlogin") != plain || dlsym(RTLD_NEXT, "getlogin") == NULL ||
		    dlsym(RTLD_DEFAULT, "getlogin") == NULL ||
		    dlsym(driver, "cuMemHostNone") != NULL)
			return NULL;
	return argument;
}

static void check_threads(void)
{
	pthread_t thread[4];
	bool good = true;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, look_up, thread);
	for (int i = 0; i < 4; i++) {
		void *result = NULL;

		pthread_join(thread[i], &result);
		good &= result != NULL;
	}
	check(good, "thousands of look-ups in four threads");
}

static void check_early(void)
{
	if (&early_started == NULL)
		return;
	check(early_started == 1 && is_in(early_next, "libc.so.6"), "in a constructor: RTLD_NEXT");
	check(early_default == early_next && early_handle == early_next,
	      "in a constructor: RTLD_DEFAULT and a handle");
	check(early_missing == NULL, "in a constructor: a missing name");
	/* Settings are not read yet, so it cannot be told whether we are switched off. */
	check(is_in(early_driver, "libcuda.so.1") || (hooked && is_in(early_driver, OURS)),
	      "in a constructor: the driver's function, or ours");
}

int main(int count, char **argument)
{
	/* So that there is a report. */
	void *block = opaque(malloc(1 << 20));

	if (count != 3)
		return 2;
	hooked = strcmp(argument[1], "hooked") == 0;
	directory = argument[2];
	check_early();
	check_library("libcuda.so.1", RTLD_NOW | RTLD_LOCAL, hooked);
	check_library("libcuda.so", RTLD_NOW | RTLD_LOCAL, hooked);
	check_library("libcudart.so.13", RTLD_NOW | RTLD_LOCAL, hooked);
	check_library("libcudart-9335f6a2.so.12", RTLD_NOW | RTLD_LOCAL, hooked);
	check_library("libcurl.so.4", RTLD_NOW | RTLD_LOCAL, false);
	check_library("libcublas.so.13", RTLD_NOW | RTLD_LOCAL, false);
	check_library("libmycudart.so", RTLD_NOW | RTLD_GLOBAL, false);
	check_library("libcudnn.so.9", RTLD_NOW | RTLD_DEEPBIND, false);
	/* Found through a library that needs it. */
	check(all_in(open_library("libuser.so", RTLD_NOW), runtime_hooks, COUNT(runtime_hooks),
		     hooked ? OURS : "libcudart.so.13"),
	      "on the handle of a library that needs libcudart");
	check_proc_address(RTLD_NOW | RTLD_LOCAL, "local");
	check_threads();
	free(block);
	return check_end();
}
