/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinshim stat --watch: the same again and again.
 *
 * On a terminal each picture takes the place of the last, cut to the window, with a line above it;
 * some keys change what is sorted by. The terminal's settings are changed for that, so every way out
 * goes through leave(): signals are read from a descriptor and acted on between two pictures.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"
#include "view.h"

#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"

struct screen {
	bool keys;            /* standard input is a terminal, too, and gives keys */
	bool changed;         /* its settings were changed */
	struct termios saved; /* what they were before */
	int signals;          /* signalfd */
	unsigned rows;
	unsigned columns;
};

static uint64_t now_milliseconds(void)
{
	struct timespec now = { 0, 0 };

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void measure(struct screen *screen)
{
	struct winsize size = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_row || !size.ws_col)
		size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	screen->rows = size.ws_row;
	screen->columns = size.ws_col;
}

/* Keys come one by one and are not shown; ^C and ^Z remain signals. */
static void enter(struct screen *screen)
{
	struct termios settings;

	measure(screen);
	/* A second time, after a stop, they may be ours. */
	if (!screen->changed)
		screen->changed = tcgetattr(STDIN_FILENO, &screen->saved) == 0;
	screen->keys = screen->changed;
	if (screen->changed) {
		settings = screen->saved;
		settings.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		settings.c_cc[VMIN] = 1;
		settings.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
	}
	fputs(HIDE_CURSOR HOME CLEAR_BELOW, stdout);
}

/* The last picture stays, and what comes next begins below it. */
static void leave(struct screen *screen)
{
	printf("\033[%u;1H" CLEAR_LINE SHOW_CURSOR, screen->rows);
	fflush(stdout);
	if (screen->changed)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &screen->saved);
}

/* One line of the picture, cut to the window. Returns what follows it. */
static const char *put_line(const char *line, const struct screen *screen)
{
	size_t length = strcspn(line, "\n");

	/* First, because after a full line the cursor still stands on its last character. */
	fputs(CLEAR_LINE, stdout);
	fwrite(line, 1, length < screen->columns ? length : screen->columns, stdout);
	putchar('\n');
	return line + length + (line[length] == '\n');
}

static void put_head(const struct ps_view *view, const struct ps_picture *picture,
		     const struct screen *screen)
{
	const struct ps_order *order = &view->order;
	const time_t seconds = time(NULL);
	struct tm local = { 0 };
	char clock[16], head[256];

	localtime_r(&seconds, &local);
	strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	snprintf(head, sizeof(head),
		 "pinshim stat  %s  every %g s  %zu alive, %zu dead, %zu unreadable  by %s%s  "
		 "keys: < > column, r reverse, space now, q quit",
		 clock, view->milliseconds / 1000.0, picture->total.alive, picture->total.dead,
		 picture->unread, order->column ? order->column->name : "job",
		 order->reverse ? " reversed" : "");
	put_line(head, screen);
}

/* All but the window's last row, where a line's end would scroll. */
static void put_picture(const struct ps_view *view, const struct ps_picture *picture,
			const struct screen *screen)
{
	const char *line = picture->text;

	fputs(HOME, stdout);
	put_head(view, picture, screen);
	for (unsigned row = 2; row < screen->rows && *line; row++)
		line = put_line(line, screen);
	fputs(*line ? CLEAR_BELOW "..." : CLEAR_BELOW, stdout);
	fflush(stdout);
}

/* The neighbour of the column that is sorted by, round and round; before the first comes none. */
static void change_column(struct ps_order *order, bool forward)
{
	const struct ps_column *last = ps_columns;

	while (last[1].name)
		last++;
	if (!order->column)
		order->column = forward ? ps_columns : last;
	else if (order->column == (forward ? last : ps_columns))
		order->column = NULL;
	else
		order->column += forward ? 1 : -1;
}

/* Takes the keys that were pressed. false to end. */
static bool take_keys(struct ps_view *view, struct screen *screen)
{
	char key[64];
	ssize_t keys = read(STDIN_FILENO, key, sizeof(key));

	if (keys <= 0)
		screen->keys = false; /* the terminal is gone, or is somebody else's now */
	for (ssize_t i = 0; i < keys; i++) {
		if (key[i] == 'q' || key[i] == 'Q')
			return false;
		if (key[i] == '<' || key[i] == ',' || key[i] == '>' || key[i] == '.')
			change_column(&view->order, key[i] == '>' || key[i] == '.');
		else if (key[i] == 'r')
			view->order.reverse = !view->order.reverse;
	}
	return true;
}

/* Ends as the signal ends processes that do not know it. */
static void end_by(int number)
{
	sigset_t set;

	signal(number, SIG_DFL);
	raise(number);
	sigemptyset(&set);
	sigaddset(&set, number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	_exit(128 + number);
}

/* Acts on a signal. The picture is to be shown again after it. */
static void take_signal(struct screen *screen)
{
	struct signalfd_siginfo info;

	if (read(screen->signals, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGTSTP:
		leave(screen);
		raise(SIGSTOP);
		break; /* SIGCONT follows */
	case SIGCONT:
		enter(screen);
		break;
	case SIGWINCH:
		measure(screen);
		break;
	default:
		leave(screen);
		end_by((int)info.ssi_signo);
	}
}

/* Sleeps until then, or until there is another reason to look. false to end. */
static bool wait_until(uint64_t then, struct ps_view *view, struct screen *screen)
{
	struct pollfd from[2] = { { .fd = screen->signals, .events = POLLIN },
				  { .fd = screen->keys ? STDIN_FILENO : -1, .events = POLLIN } };
	uint64_t now = now_milliseconds();

	if (poll(from, 2, then > now ? (int)(then - now) : 0) <= 0)
		return true;
	if (from[0].revents)
		take_signal(screen);
	return !from[1].revents || take_keys(view, screen);
}

static int open_signals(void)
{
	static const int number[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH
	};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++)
		sigaddset(&set, number[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* One picture in place of the last. PS_EXIT_OK or PS_EXIT_INCOMPLETE. */
static int show_in_place(const struct ps_view *view, const struct screen *screen)
{
	struct ps_picture picture;
	int status;

	if (ps_picture_take(&picture, view) < 0)
		return PS_EXIT_INCOMPLETE;
	put_picture(view, &picture, screen);
	status = picture.unread ? PS_EXIT_INCOMPLETE : PS_EXIT_OK;
	ps_picture_free(&picture);
	return status;
}

static int watch_terminal(struct ps_view *view)
{
	struct screen screen = { .signals = open_signals() };
	unsigned long looks = 0;
	int status = PS_EXIT_OK;
	bool more = true;

	view->search.quiet = true;
	enter(&screen);
	while (more && !ferror(stdout)) {
		const uint64_t then = now_milliseconds() + view->milliseconds;

		status = show_in_place(view, &screen);
		more = ++looks != view->times && wait_until(then, view, &screen);
	}
	leave(&screen);
	close(screen.signals);
	return status;
}

/* To a file or a pipe: one picture after the other. */
static int watch_stream(const struct ps_view *view)
{
	unsigned long looks = 0;
	int status;

	for (;;) {
		status = ps_view_show(view);
		if (fflush(stdout) != 0 || ++looks == view->times)
			return status;
		if (!view->output && view->format == PS_FORMAT_LISTING)
			putchar('\n');
		poll(NULL, 0, (int)view->milliseconds);
	}
}

int ps_watch(struct ps_view *view)
{
	const char *terminal = getenv("TERM");

	if (view->format != PS_FORMAT_LISTING || view->output || !isatty(STDOUT_FILENO) ||
	    !terminal || strcmp(terminal, "dumb") == 0)
		return watch_stream(view);
	return watch_terminal(view);
}
