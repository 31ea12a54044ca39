/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals while io_getevents() waits, and the mask of io_pgetevents().
 */
#include <time.h>

#include "behaviour.h"

#define BLOCK 4096

static atomic_int caught;
static timer_t timer;

static void handler(int number)
{
	(void)number;
	atomic_fetch_add(&caught, 1);
}

static void on_signal(int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	sigaction(SIGUSR1, &action, NULL);
}

/* SIGUSR1 every 5 ms from now on, so that none can come too early for ever; or no more. */
static void signals(bool on)
{
	struct itimerspec time = { { 0, on ? 5000000 : 0 }, { 0, on ? 5000000 : 0 } };

	if (on)
		atomic_store(&caught, 0);
	need(timer_settime(timer, 0, &time, NULL) == 0, "timer_settime");
}

static sigset_t only(int number)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number);
	return set;
}

static bool is_blocked(int number)
{
	sigset_t now;

	pthread_sigmask(SIG_SETMASK, NULL, &now);
	return sigismember(&now, number) == 1;
}

static void interrupted(const struct way *way, io_context_t context, const char *state)
{
	static const int flags[] = { 0, SA_RESTART };
	struct io_event event[4];

	for (int i = 0; i < 2; i++) {
		int got;

		watch("a signal while waiting");
		on_signal(flags[i]);
		signals(true);
		got = io_getevents(context, 1, 4, event, NULL);
		signals(false);
		check(got == -EINTR && atomic_load(&caught) > 0,
		      "%s, %s: a signal%s ends io_getevents() with EINTR", way->name, state,
		      i ? ", handled with SA_RESTART," : "");
		watch("a signal while waiting for a time");
		signals(true);
		got = io_getevents(context, 1, 4, event, &(struct timespec){ 60, 0 });
		signals(false);
		check(got == -EINTR && atomic_load(&caught) > 0,
		      "%s, %s: a signal%s ends a wait for a time, too", way->name, state,
		      i ? ", handled with SA_RESTART," : "");
		watch("a signal in io_pgetevents");
		signals(true);
		got = io_pgetevents(context, 1, 4, event, NULL, NULL);
		signals(false);
		check(got == -EINTR && atomic_load(&caught) > 0,
		      "%s, %s: a signal%s ends io_pgetevents() without a mask", way->name, state,
		      i ? ", handled with SA_RESTART," : "");
	}
	for (int i = 0; i < 3; i++) {
		static const struct timespec negative[] = { { -1, 0 },
							    { 0, -1 },
							    { -1, 999999999 } };
		struct timespec time = negative[i];
		int got;

		watch("a negative time");
		signals(true);
		got = io_getevents(context, 1, 4, event, &time);
		signals(false);
		check(got == -EINTR, "%s, %s: a negative time is waited for until a signal, %d",
		      way->name, state, i);
	}
	watch("a negative second and a whole one");
	gives("no time at all, in two parts",
	      io_getevents(context, 1, 4, event, &(struct timespec){ -1, SECOND }));
	watch("an ignored signal");
	signal(SIGUSR1, SIG_IGN);
	signals(true);
	gives("with an ignored signal",
	      io_getevents(context, 1, 4, event, &(struct timespec){ 0, 70000000 }));
	signals(false);
}

/* Some events, and a signal before there are enough. */
static void some(const struct way *way, io_context_t context, int fd)
{
	struct iocb iocb[2], *list[2] = { &iocb[0], &iocb[1] };
	char *memory = buffer(2 * (size_t)BLOCK);
	struct io_event event[4];
	int got;

	watch("a signal after some events");
	io_prep_pread(&iocb[0], fd, memory, BLOCK, 0);
	io_prep_pread(&iocb[1], fd, memory + BLOCK, BLOCK, BLOCK);
	on_signal(0);
	need(io_submit(context, 2, list) == 2, "io_submit");
	signals(true);
	/* A signal may come before the reads are done. */
	while ((got = io_getevents(context, 3, 4, event, NULL)) == -EINTR)
		;
	if (got == 1 && io_getevents(context, 1, 4, event + 1, NULL) == 1)
		got = 2;
	signals(false);
	check(got == 2 && atomic_load(&caught) > 0,
	      "%s: a signal ends a wait for more with what there is", way->name);
	check(io_getevents(context, 0, 4, event, NULL) == 0, "%s: once", way->name);
	free(memory);
}

static void masks(const struct way *way, io_context_t context, int fd, const char *state)
{
	sigset_t user = only(SIGUSR1), none, all, before;
	char *memory = buffer(BLOCK);
	struct io_event event[4];
	struct iocb iocb;
	int got;

	sigemptyset(&none);
	sigfillset(&all);
	sigdelset(&all, SIGALRM);
	on_signal(0);
	pthread_sigmask(SIG_BLOCK, &user, &before);

	watch("a pending signal that the mask lets through");
	atomic_store(&caught, 0);
	raise(SIGUSR1);
	got = io_pgetevents(context, 1, 4, event, NULL, &none);
	check(got == -EINTR && atomic_load(&caught) == 1 && is_blocked(SIGUSR1),
	      "%s, %s: a pending signal that the mask lets through: EINTR, and the mask is back",
	      way->name, state);
	watch("a signal that comes while the mask lets it through");
	signals(true);
	got = io_pgetevents(context, 1, 4, event, NULL, &none);
	signals(false);
	check(got == -EINTR && atomic_load(&caught) > 0 && is_blocked(SIGUSR1),
	      "%s, %s: a signal that comes while the mask lets it through: EINTR", way->name,
	      state);
	io_pgetevents(context, 0, 4, event, &(struct timespec){ 0 }, &none);
	atomic_store(&caught, 0);

	watch("a pending signal and no wait");
	raise(SIGUSR1);
	gives("a pending signal, at least 0 of 4, no time",
	      io_pgetevents(context, 0, 4, event, &(struct timespec){ 0 }, &none));
	say("a pending signal, no wait: %s\n", atomic_load(&caught) ? "handled" : "still pending");
	gives("again",
	      io_pgetevents(context, 1, 4, event, &(struct timespec){ 0, 1000000 }, &none));
	atomic_store(&caught, 0);

	watch("a pending signal and an event");
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	need(submit(context, &iocb) == 1, "io_submit");
	sleep_ms(20); /* so that most likely it is done: either is right */
	raise(SIGUSR1);
	got = io_pgetevents(context, 1, 4, event, NULL, &none);
	if (got == -EINTR)
		got = reap(context, 1, event);
	check(got == 1 && event[0].res == BLOCK, "%s, %s: the event beside a signal is not lost",
	      way->name, state);
	io_pgetevents(context, 0, 4, event, &(struct timespec){ 0, 1 }, &none);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	check(atomic_load(&caught) == 1, "%s, %s: nor is the signal", way->name, state);

	watch("a signal that the mask blocks");
	signals(true);
	got = io_pgetevents(context, 1, 4, event, &(struct timespec){ 0, 70000000 }, &all);
	signals(false);
	check(got == 0 && atomic_load(&caught) > 0 && !is_blocked(SIGUSR1),
	      "%s, %s: a signal that the mask blocks does not end the wait, and comes after it",
	      way->name, state);
	watch("a mask and events");
	need(submit(context, &iocb) == 1, "io_submit");
	got = io_pgetevents(context, 1, 4, event, NULL, &all);
	check(got == 1 && !is_blocked(SIGUSR1), "%s, %s: with events the mask is as before, too",
	      way->name, state);
	free(memory);
}

int main(int argc, char **argv)
{
	struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };

	begin(argc, argv);
	signal(SIGUSR1, SIG_IGN);
	need(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0, "timer_create");
	FOR_EACH_WAY(way)
	{
		int fd = file_with("signals", 65536, 1, way->flags);
		io_context_t context = context_for(8);

		interrupted(way, context, "unused");
		masks(way, context, fd, "unused");
		some(way, context, fd);
		interrupted(way, context, "used");
		masks(way, context, fd, "used");
		close(fd);
	}
	return check_end();
}
