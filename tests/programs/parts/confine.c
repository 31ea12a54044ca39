/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * confine [io_uring=ERRNO] [thp=off] [collapse=off] [exec=plain] PROGRAM [ARGUMENT]...: runs it where a
 * seccomp filter answers io_uring_setup(2) with this error, without transparent huge pages, where
 * MADV_COLLAPSE is not known, without the rights that set-user-ID gives.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static int apply_filter(struct sock_filter *filter, unsigned short length)
{
	struct sock_fprog program = { length, filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static int refuse_ring(unsigned error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return apply_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

static int refuse_collapse(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_COLLAPSE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return apply_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

/* 1: it was one of ours. */
static int apply(const char *argument)
{
	if (!strcmp(argument, "io_uring=EPERM"))
		return refuse_ring(EPERM) == 0 ? 1 : -1;
	if (!strcmp(argument, "io_uring=ENOSYS"))
		return refuse_ring(ENOSYS) == 0 ? 1 : -1;
	if (!strcmp(argument, "thp=off"))
		return prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0 ? 1 : -1;
	if (!strcmp(argument, "collapse=off"))
		return refuse_collapse() == 0 ? 1 : -1;
	if (!strcmp(argument, "exec=plain"))
		return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 1 : -1;
	return 0;
}

int main(int argc, char **argv)
{
	int i, applied = 1;

	for (i = 1; i < argc && (applied = apply(argv[i])) > 0; i++)
		;
	if (applied == 0)
		execvp(argv[i], argv + i);
	perror(argc > i ? argv[i] : "confine");
	return 99;
}
