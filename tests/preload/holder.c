/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * holder WAY BLOCK TOTAL: waits for a line on its standard input, asks for TOTAL MiB in blocks of BLOCK
 * MiB, prints "PID MIB", how much it got that is locked, and holds it until the next line. Nothing is touched, so what was not pinned takes no memory. The ways:
 *
 *   malloc   blocks of malloc
 *   alloc    of pinshim_alloc(), until it says no
 *   pin      memory of its own, by pinshim_pin()
 *   trim     as malloc; but first 300, 100 and 300 MiB, the first and last of which are freed again
 */
#include <sys/mman.h>

#include "../../interpose/pinshim.h"
#include "check.h"

#define M ((size_t)1 << 20)

static void *get(const char *way, size_t bytes)
{
	void *memory;

	if (strcmp(way, "alloc") == 0)
		return pinshim_alloc(bytes, 0);
	if (strcmp(way, "pin") != 0)
		return malloc(bytes);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return memory != MAP_FAILED && pinshim_pin(memory, bytes) == 0 ? memory : NULL;
}

static void leave_kept(void)
{
	char *first = opaque((char *)malloc(300 * M)), *second = opaque((char *)malloc(100 * M)),
	     *third = opaque((char *)malloc(300 * M));

	free(first);
	free(third);
	opaque(second)[0] = 1;
}

static void wait_for_line(void)
{
	char line[64];

	if (read(STDIN_FILENO, line, sizeof(line)) < 0)
		_exit(3);
}

int main(int argc, char **argv)
{
	size_t block, total;

	if (argc != 4)
		return 2;
	block = strtoul(argv[2], NULL, 10) * M;
	total = strtoul(argv[3], NULL, 10) * M;
	alarm(100);
	if (strcmp(argv[1], "trim") == 0)
		leave_kept();
	wait_for_line();
	for (size_t got = 0; got < total; got += block)
		if (opaque(get(argv[1], block)) == NULL)
			break;
	say("%d %ld\n", (int)getpid(), locked_bytes() >> 20);
	wait_for_line();
	return 0;
}
