/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * age [PERCENT [SECONDS [MAX_BYTES]]]
 *
 * Makes the memory of a machine look as it does after weeks of work: fills PERCENT (90) of what is
 * available with 4 KiB pages and gives every other one back, so that what is free lies scattered.
 * Prints "ready ..." and holds that for SECONDS (60); SIGTERM ends it sooner.
 *
 * It must never cost anybody else their memory: it ends with its parent; it stops filling, and ends
 * if it already holds, when less than the reserve (5 % of memory, at least 512 MiB) is available; it
 * heeds the cgroup's limit; and it asks the kernel to kill it first.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "clock.h"
#include "proc.h"

#define PAGE ((size_t)4096)
#define STEP ((size_t)64 << 20)

static size_t reserve;

static size_t available(void)
{
	return (size_t)proc_value("/proc/meminfo", "MemAvailable") * 1024;
}

static int scarce(void)
{
	return available() < reserve;
}

/* Reads one number from a file; "max", or no such file, is no limit. */
static size_t number_in(const char *directory, const char *file)
{
	char path[4400], text[64] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return SIZE_MAX;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	return n > 0 && text[0] != 'm' ? strtoull(text, NULL, 10) : SIZE_MAX;
}

/* What the memory cgroup of this process, version 1 or 2, still allows. */
static size_t cgroup_room(void)
{
	char line[4096], directory[4300];
	size_t room = SIZE_MAX, limit, used;
	FILE *cgroup = fopen("/proc/self/cgroup", "re");

	while (cgroup && fgets(line, sizeof(line), cgroup)) {
		int old = strstr(line, ":memory:") != NULL;

		line[strcspn(line, "\n")] = '\0';
		if (!old && strncmp(line, "0::", 3) != 0)
			continue;
		snprintf(directory, sizeof(directory), "/sys/fs/cgroup%s%s", old ? "/memory" : "",
			 strchr(strchr(line, ':') + 1, ':') + 1);
		limit = number_in(directory, old ? "memory.limit_in_bytes" : "memory.max");
		used = number_in(directory, old ? "memory.usage_in_bytes" : "memory.current");
		if (limit == SIZE_MAX || used == SIZE_MAX)
			continue;
		limit = limit > used ? limit - used : 0;
		room = limit < room ? limit : room;
	}
	if (cgroup)
		fclose(cgroup);
	return room;
}

static void end_with_parent(pid_t parent)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (write(fd, "1000", 4) != 4)
			fprintf(stderr, "age: the kernel may not kill it first: %s\n",
				strerror(errno));
		close(fd);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

/* In order, since neighbours in address are then mostly neighbours in memory. */
static size_t fill(char *start, size_t wanted)
{
	size_t filled = 0;

	while (filled < wanted && !scarce()) {
		size_t step = wanted - filled < STEP ? wanted - filled : STEP;

		populate(start + filled, step);
		filled += step;
	}
	return filled;
}

int main(int argc, char **argv)
{
	size_t percent = argc > 1 ? strtoull(argv[1], NULL, 10) : 90;
	double seconds = argc > 2 ? atof(argv[2]) : 60, begin = now();
	size_t wanted = argc > 3 ? strtoull(argv[3], NULL, 10) : SIZE_MAX;
	size_t share, room, filled;
	char *start;

	if (percent < 1 || percent > 95 || seconds <= 0 || seconds > 3600) {
		fprintf(stderr,
			"age: takes 1 to 95 percent, up to 3600 seconds, and most bytes to fill\n");
		return 2;
	}
	end_with_parent(getppid());
	reserve = (size_t)proc_value("/proc/meminfo", "MemTotal") * 1024 / 20;
	if (reserve < (size_t)512 << 20)
		reserve = (size_t)512 << 20;
	share = available() / 100 * percent;
	room = cgroup_room() / 100 * percent;
	wanted = wanted < share ? wanted : share;
	wanted = (wanted < room ? wanted : room) & ~(2 * PAGE - 1);

	start = mmap(NULL, wanted, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (start == MAP_FAILED) {
		fprintf(stderr, "age: mmap of %zu bytes: %s\n", wanted, strerror(errno));
		return 1;
	}
	if (madvise(start, wanted, MADV_NOHUGEPAGE) != 0)
		fprintf(stderr, "age: no MADV_NOHUGEPAGE: %s\n", strerror(errno));
	filled = fill(start, wanted);
	for (size_t at = 0; at < filled; at += 2 * PAGE)
		madvise(start + at, PAGE, MADV_DONTNEED);
	printf("ready filled=%zu available=%zu seconds=%.1f\n", filled, available(), now() - begin);
	fflush(stdout);

	for (begin = now(); now() - begin < seconds; usleep(100000)) {
		if (scarce()) {
			fprintf(stderr, "age: memory is scarce, ending early\n");
			return 1;
		}
	}
	return 0;
}
