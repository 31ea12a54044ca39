/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two trials, each in a child process: whether the kernel locks 2 MiB, and whether libpinshim.so,
 * preloaded with the settings as they are, does. The second needs no program of its own: this command
 * printing its version allocates memory, and the library's report says what became of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "child.h"
#include "chunk.h"
#include "doctor.h"
#include "maps.h"
#include "os.h"
#include "populate.h"

#define TRIAL_SECONDS 30 /* a child that takes longer hangs */

/* What the first child found. */
struct outcome {
	int mapped, populated, locked; /* 0 or -errno */
	int64_t huge;                  /* bytes in huge pages, or -errno */
	int64_t shared_huge;           /* bytes in huge pages of as much shared memory, or -errno */
};

/* A locked chunk, or one of shared memory, is a mapping of its own. Bytes, or -errno. */
static int64_t huge_bytes(const void *chunk, size_t size)
{
	const int64_t huge = ps_os_huge_bytes(chunk, size);

	return huge == -ENOTTY ? ps_maps_huge_bytes(chunk, size) : huge;
}

/* Maps shared memory over the chunk and populates it as for CUDA. Bytes in huge pages, or -errno. */
static int64_t try_shared(void *chunk, size_t size)
{
	void *same;
	int r = ps_os_mmap(chunk, size, PROT_READ | PROT_WRITE, ps_chunk_mapping(true), -1, 0,
			   &same);

	if (r == 0)
		r = ps_populate(chunk, size, true, NULL);
	/* Before Linux 5.14. */
	if (r == -EINVAL)
		memset(chunk, 0, size);
	else if (r < 0)
		return r;
	return huge_bytes(chunk, size);
}

static void lock_chunk(void *result)
{
	struct outcome *outcome = result;
	const size_t size = PS_CHUNK_BYTES;
	void *memory;
	char *chunk;

	outcome->mapped = ps_os_mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory);
	if (outcome->mapped < 0)
		return;
	chunk = (char *)(((uintptr_t)memory + size - 1) & ~(uintptr_t)(size - 1));
	ps_os_madvise(chunk, size, MADV_HUGEPAGE);
	outcome->populated = ps_os_populate(chunk, size);
	outcome->locked = ps_os_mlock(chunk, size);
	outcome->huge = huge_bytes(chunk, size);
	outcome->shared_huge = try_shared(chunk, size);
}

static void say_outcome(struct ps_doctor *doctor, const struct outcome *outcome)
{
	struct ps_findings *findings = &doctor->findings;
	const bool shared_small = doctor->config.hugepages == PS_HUGEPAGES_THP &&
				  outcome->huge > 0 && outcome->shared_huge == 0;
	const char *pages = outcome->huge < 0   ? ""
			    : outcome->huge > 0 ? ", in a huge page"
						: ", in 4 KiB pages";
	const char *shared = shared_small ? "; host memory for CUDA, which is shared memory, is in "
					    "4 KiB pages"
					  : "";

	if (outcome->mapped < 0)
		ps_findings_add(findings, PS_STATE_FAILED, "kernel", "raise 'ulimit -v'",
				"no memory can be had for a trial: %s",
				strerrordesc_np(-outcome->mapped));
	else if (outcome->locked < 0)
		ps_findings_add(findings,
				doctor->config.hugepages == PS_HUGEPAGES_HUGETLB ? PS_STATE_NOTE
										 : PS_STATE_FAILED,
				"kernel", "see memlock above",
				"mlock of 2 MiB in a child process failed: %s",
				strerrordesc_np(-outcome->locked));
	else
		ps_findings_add(findings, shared_small ? PS_STATE_NOTE : PS_STATE_OK, "kernel",
				shared_small
					? "as root: echo advise >/sys/kernel/mm/"
					  "transparent_hugepage/shmem_enabled, or use Linux 6.1 "
					  "or later"
					: NULL,
				"locked 2 MiB in a child process%s%s%s", pages, shared,
				outcome->populated == -EINVAL
					? "; without MADV_POPULATE_WRITE (Linux 5.14) one thread "
					  "brings in large blocks"
					: "");
}

static void try_kernel(struct ps_doctor *doctor)
{
	struct outcome outcome = { .mapped = 0 };
	char why[128] = "";
	struct ps_text text = PS_TEXT_INIT(why);

	if (ps_child_ask(lock_chunk, &outcome, sizeof(outcome), TRIAL_SECONDS, &text))
		say_outcome(doctor, &outcome);
	else
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "kernel", NULL,
				"a chunk of 2 MiB could not be tried: %s", why);
}

/* What the second child left. */
struct report {
	char json[64 << 10]; /* the library's */
	char said[8 << 10];  /* on standard error */
	char how[128];       /* it ended; empty: well */
};

/* In the child: becomes this command, with the library preloaded. */
static void become_trial(const struct ps_doctor *doctor, int json, int said)
{
	static char command[] = "pinshim", version[] = "--version";
	static char value[64 << 10];
	char *argv[] = { command, version, NULL };
	struct ps_text preload = PS_TEXT_INIT(value);
	char stats[32];
	struct ps_text path = PS_TEXT_INIT(stats);
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	ps_preload_value(&doctor->preload, getenv("LD_PRELOAD"), &preload);
	/* A copy stays open across exec. */
	ps_text_add(&path, "/proc/self/fd/%d", dup(json));
	if (nothing < 0 || dup2(nothing, STDOUT_FILENO) < 0 || dup2(said, STDERR_FILENO) < 0 ||
	    setenv("LD_PRELOAD", value, 1) < 0 || setenv("PINSHIM_STATS", stats, 1) < 0 ||
	    unsetenv("PINSHIM_TRACE") < 0 || setenv("PINSHIM_MALLOC", "1-", 1) < 0 ||
	    setenv("PINSHIM_LOG", "warn", 1) < 0)
		_exit(EXIT_FAILURE);
	alarm(TRIAL_SECONDS);
	execv("/proc/self/exe", argv);
	_exit(EXIT_FAILURE);
}

/* false where no child could be made. */
static bool run_trial(const struct ps_doctor *doctor, struct report *report)
{
	struct ps_text how = PS_TEXT_INIT(report->how);
	int json[2], said[2];
	pid_t child;

	report->how[0] = '\0';
	if (pipe2(json, O_CLOEXEC) < 0)
		return false;
	if (pipe2(said, O_CLOEXEC) < 0) {
		close(json[0]);
		close(json[1]);
		return false;
	}
	child = fork();
	if (child == 0)
		become_trial(doctor, json[1], said[1]);
	close(json[1]);
	close(said[1]);
	/* Neither fills its pipe: the child is not held up while the other is read. */
	ps_child_read(json[0], report->json, sizeof(report->json));
	ps_child_read(said[0], report->said, sizeof(report->said));
	close(json[0]);
	close(said[0]);
	return child > 0 && (ps_child_wait(child, &how), true);
}

/* A number of the report; 0 where it is missing. */
static uint64_t figure(const char *json, const char *name)
{
	char quoted[64];
	struct ps_text text = PS_TEXT_INIT(quoted);
	const char *at;
	uint64_t value;

	ps_text_add(&text, "\"%s\":", name);
	at = strstr(json, quoted);
	if (!at)
		return 0;
	at += text.length;
	at += strspn(at, " ");
	return ps_text_parse_size(at, &at, &value) == 0 ? value : 0;
}

/* The first line that the child said, without "pinshim[pid]: ". */
static char *first_line(char *said)
{
	char *colon;

	said[strcspn(said, "\n")] = '\0';
	colon = strstr(said, "]: ");
	return !strncmp(said, "pinshim[", strlen("pinshim[")) && colon ? colon + 3 : said;
}

static void say_report(struct ps_doctor *doctor, struct report *report)
{
	uint64_t pinned = figure(report->json, "pinned_peak_bytes");
	enum ps_state state = pinned && !report->how[0] ? PS_STATE_OK : PS_STATE_FAILED;
	struct ps_text found, remedy;

	ps_findings_begin(&doctor->findings, state, "trial", &found, &remedy);
	if (state == PS_STATE_OK) {
		ps_text_add(&found, "with the library preloaded a child process pinned ");
		ps_text_add_bytes(&found, pinned);
		ps_text_add(&found, ", ");
		ps_text_add_bytes(&found, figure(report->json, "huge_bytes"));
		ps_text_add(&found, " of it in huge pages");
		return;
	}
	ps_text_add(&found, "with the library preloaded a child process pinned nothing: %s",
		    first_line(report->said));
	ps_text_add(&found, "%s%s", report->said[0] && report->how[0] ? ": " : "", report->how);
	if (!report->json[0])
		ps_text_add(&remedy, "see what 'pinshim run -- true' says");
}

static void try_library(struct ps_doctor *doctor)
{
	static struct report report;

	if (!doctor->has_library)
		return;
	if (doctor->config.backend == PS_BACKEND_OFF)
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "trial",
				"unset PINSHIM_BACKEND, or set it to native",
				"PINSHIM_BACKEND=off: nothing is pinned");
	else if (run_trial(doctor, &report))
		say_report(doctor, &report);
	else
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "trial", NULL,
				"no child process can be made");
}

void ps_doctor_trial(struct ps_doctor *doctor)
{
	try_kernel(doctor);
	try_library(doctor);
}
