/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CONTEXT_H
#define PS_CONTEXT_H
/*
 * The contexts of a program, each with the kernel's own behind it: its id is the kernel's, so what we
 * do not know (a raw system call's, a parent's before fork) is the kernel's to answer.
 *
 * A context begins undecided and takes its engine at its first request. While it uses a ring, the magic
 * number of the kernel's completion ring is 0, so that programs which read that themselves
 * (fio's userspace_reap, libaio) see that they cannot. The first request that a ring could not serve as
 * the kernel's AIO does settles the context: from then on everything goes to the kernel's, whose magic
 * number is right again if nothing was in flight, and what the ring has in flight is still had from there.
 * Such requests are those on files that are not open for direct I/O (which the kernel's AIO serves in
 * order, before io_submit returns), or whose file system does not say what that demands or needs another
 * thread for it (file.h), on O_APPEND files, writes beyond the end of the file (the same), polls, an fsync while another is in
 * flight (the kernel would interrupt the program for it), eventfd
 * notification (QEMU reads the completion ring without looking at the magic), and flags with another
 * meaning there. What the kernel refuses at once does not settle anything.
 *
 * Locks, outermost first: a context's submission lock -> the locks of repair.h, its completion lock, and
 * the one for making and ending contexts (context.c) -> the lock of pinned.h. With a submission lock held
 * the kernel is entered, and by a ring's context misaligned requests are done that cannot be waited for;
 * nothing sleeps with a completion lock held. Nothing under them allocates from the program's malloc.
 * Waiting for completions is done without a lock. While the C library knows of no other thread, a context that
 * was set up then takes its locks without locked instructions, as the C library does: threads that it does not
 * know of (by clone(2)) must not use the context of another.
 *
 * A signal's handler may make all these calls, as they are system calls otherwise, and waits for no lock that the
 * thread which it has interrupted holds (held.h): what it submits then goes to the kernel's AIO, unrepaired, and
 * settles the context; there are no events for it where that thread is taking some; and a context that it ends is
 * given up by that thread. It must not leave a call by longjmp().
 */
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

/* Was it set up through us, and has not ended? No lock. */
bool ps_context_is_ours(aio_context_t id);

/* As the functions of libaio they stand behind; all return 0 or a count, or -errno. */
int ps_context_setup(unsigned events, aio_context_t *id);
int ps_context_destroy(aio_context_t id);
int ps_context_submit(aio_context_t id, long count, struct iocb **iocbs);
int ps_context_cancel(aio_context_t id, struct iocb *iocb, struct io_event *event);
int ps_context_getevents(aio_context_t id, long least, long most, struct io_event *events,
			 struct timespec *timeout, const sigset_t *mask);

/*
 * Promises that one thread alone will submit to and reap from this context, whatever other threads
 * there are: it may have a deferred ring. For the handle API, whose threads are ours.
 */
void ps_context_own(aio_context_t id);

/*
 * Registers pinned memory that is going to be read or written through this context, so that the request
 * need not wait for that: a millisecond for 64 MiB, best spent while others are in flight. For the thread
 * that submits. Does nothing where there is no ring yet or nothing to register.
 */
void ps_context_expect(aio_context_t id, const void *memory, size_t length);

/*
 * The process is about to have a second thread: contexts with a ring that only one thread can enter
 * wait for what is in flight and go on with the kernel's AIO. Called by that one thread.
 */
void ps_context_before_thread(void);

/* The process ends: waits for what rings have in flight, as the kernel's AIO would finish it. */
void ps_context_at_exit(void);

void ps_context_fork_prepare(void);
void ps_context_fork_parent(void);
/* In a child no context exists; rings are let go. */
void ps_context_fork_child(void);

#endif
