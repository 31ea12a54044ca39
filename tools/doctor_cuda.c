/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program would find. The driver is asked in a child process, which it cannot hold up or take
 * down with it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "child.h"
#include "cuda_abi.h"
#include "doctor.h"

#define DRIVER "libcuda.so.1"
#define DRIVER_SECONDS 60 /* many GPUs take some */

/* What the child found. */
struct answer {
	bool loaded;
	int result; /* of cuInit() and what comes after it */
	int version, devices;
	char path[PATH_MAX]; /* of the library, or why it cannot be loaded */
	char error[64];      /* the name of the result */
};

/* The functions that are called. */
struct driver {
	int (*init)(unsigned flags);
	int (*version)(int *version);
	int (*devices)(int *count);
	int (*name)(int error, const char **name);
};

static bool find_functions(void *library, struct driver *driver)
{
	*(void **)&driver->init = dlsym(library, "cuInit");
	*(void **)&driver->version = dlsym(library, "cuDriverGetVersion");
	*(void **)&driver->devices = dlsym(library, "cuDeviceGetCount");
	*(void **)&driver->name = dlsym(library, "cuGetErrorName");
	return driver->init && driver->version && driver->devices;
}

static void ask(void *result)
{
	struct answer *answer = result;
	struct ps_text path = PS_TEXT_INIT(answer->path), error = PS_TEXT_INIT(answer->error);
	void *library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
	struct driver driver = { .init = NULL };
	const char *name;
	Dl_info info;

	if (!library || !find_functions(library, &driver)) {
		ps_text_add(&path, "%s", dlerror());
		return;
	}
	answer->loaded = true;
	if (dladdr(*(void **)&driver.init, &info))
		ps_text_add(&path, "%s", info.dli_fname);
	driver.version(&answer->version);
	answer->result = driver.init(0);
	if (answer->result == 0)
		answer->result = driver.devices(&answer->devices);
	if (answer->result != 0 && driver.name && driver.name(answer->result, &name) == 0)
		ps_text_add(&error, "%s", name);
}

/* Without CUDA nothing is lost, but to a program that uses it. */
static enum ps_state missing(const struct ps_doctor *doctor)
{
	return doctor->uses_cuda ? PS_STATE_WARNING : PS_STATE_NOTE;
}

static void say_result(struct ps_doctor *doctor, const struct answer *answer)
{
	struct ps_text found, remedy;

	ps_findings_begin(&doctor->findings, missing(doctor), "cuda_driver", &found, &remedy);
	ps_text_add(&found, "%s does not work: ", answer->path);
	if (answer->result == 0)
		ps_text_add(&found, "it has no device");
	else if (answer->error[0])
		ps_text_add(&found, "%s (%d)", answer->error, answer->result);
	else
		ps_text_add(&found, "error %d", answer->result);
	ps_text_add(&found, ": host memory for CUDA would be locked only");
	if (answer->result == PS_CUDA_STUB_LIBRARY)
		ps_text_add(&remedy, "it is a stub for building: take its directory out of "
				     "LD_LIBRARY_PATH");
	else
		ps_text_add(&remedy, "look at nvidia-smi and /dev/nvidia*, and at "
				     "CUDA_VISIBLE_DEVICES; in a container, docker --gpus all");
}

static void check_driver(struct ps_doctor *doctor)
{
	struct answer answer = { .loaded = false };
	char why[128] = "";
	struct ps_text text = PS_TEXT_INIT(why);

	if (!ps_child_ask(ask, &answer, sizeof(answer), DRIVER_SECONDS, &text))
		ps_findings_add(&doctor->findings, PS_STATE_WARNING, "cuda_driver",
				"look at nvidia-smi", "asking " DRIVER " failed: %s", why);
	else if (!answer.loaded)
		ps_findings_add(&doctor->findings, missing(doctor), "cuda_driver",
				"install the driver; in a container, docker --gpus all",
				"none is found (%s): host memory for CUDA would be locked only",
				answer.path);
	else if (answer.result != 0 || answer.devices == 0)
		say_result(doctor, &answer);
	else
		ps_findings_add(&doctor->findings, PS_STATE_OK, "cuda_driver", NULL,
				"%s for CUDA %d.%d, %d device%s", answer.path,
				answer.version / 1000, answer.version % 1000 / 10, answer.devices,
				answer.devices == 1 ? "" : "s");
}

static void check_runtime(struct ps_doctor *doctor)
{
	static const char *const names[] = { "libcudart.so.13", "libcudart.so.12",
					     "libcudart.so.11.0" };
	static const struct ps_needer nobody;
	struct ps_text found, remedy;

	ps_findings_begin(&doctor->findings, PS_STATE_OK, "cuda_runtime", &found, &remedy);
	if (doctor->has_program && doctor->program.runtime) {
		ps_text_add(&found, "%s, which the program needs", doctor->program.runtime);
		return;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		static struct ps_object object;

		if (ps_loader_find(names[i], &nobody, &object) < 0)
			continue;
		ps_text_add(&found, "%s%s", found.length ? ", " : "", object.path);
		ps_object_close(&object);
	}
	if (!found.length)
		ps_text_add(&found, "none where every program looks; programs may bring their own");
}

void ps_doctor_cuda(struct ps_doctor *doctor)
{
	check_driver(doctor);
	check_runtime(doctor);
}
