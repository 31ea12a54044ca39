/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinshim io: how fast the handle API reads and writes, in the lines that DeepSpeed's ds_io prints.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pinshim_aio.h"
#include "text.h"
#include "tool.h"

#define GB ((double)((uint64_t)1 << 30))
#define SIZE_UNLESS_SAID ((uint64_t)400 << 20)
#define LOOPS_UNLESS_SAID 3
#define SECONDS_UNTIL_LONG 2 /* from when on progress is shown */

struct io {
	struct pinshim_aio_options options;
	bool read, write, validate, json;
	bool buffered_memory;  /* from malloc() */
	const char *file;      /* or in */
	const char *directory; /* a file without a name, open as fd */
	int fd;
	uint64_t size, offset, misaligned, loops; /* size 0: not said */
	struct pinshim_aio_handle *handle;
	char *memory; /* misaligned bytes more than size */
};

/* What one direction took. */
struct measure {
	double task; /* seconds in the calls that read or write, of all loops */
	double e2e;  /* seconds from before the first to after the last */
	uint64_t bytes;
};

/* The progress line of a long run. */
struct progress {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t stop;
	bool shown, stopped;
	const char *does;
	struct pinshim_aio_handle *handle;
	uint64_t before, total; /* bytes */
};

static const char usage[] =
	"usage: pinshim io {--read | --write} {--file=FILE | --directory=DIRECTORY} [OPTION]...\n\n"
	"Measures the handle API of libpinshim-aio (pinshim_aio(3)); prints what ds_io prints.\n\n"
	"  -r, --read             read; after writing, if both are asked for\n"
	"  -w, --write            write: FILE is overwritten from --offset on\n"
	"  -f, --file=FILE        what to read or write\n"
	"  -d, --directory=DIRECTORY\n"
	"                         use a new file there, which is gone afterwards\n"
	"  -s, --size=BYTES       how much: the rest of FILE to read, else 400M\n"
	"  -o, --offset=BYTES     where in the file to begin (0)\n"
	"  -b, --block-size=BYTES of a request (%" PRIu64 "K)\n"
	"  -q, --queue-depth=N    requests in flight, of each thread (%" PRIu32 ")\n"
	"  -t, --threads=N        (%" PRIu32 ")\n"
	"      --single-submit[=0|1]\n"
	"                         submit each request by itself (%" PRIu32 ")\n"
	"      --overlap-events[=0|1]\n"
	"                         replace each request that completes at once (%" PRIu32 ")\n"
	"  -l, --loops=N          do it this often (%d)\n"
	"      --misaligned=BYTES add this to the address of the buffer (0)\n"
	"      --buffered-memory  memory of malloc() and not locked memory\n"
	"      --validate         compare the file with the buffer each time, which is measured, too\n"
	"  -j, --json             one JSON object instead of lines\n"
	"  -h, --help             this text\n\n"
	"Sizes take K, M, G, T. Exit status: 0, or 1 if something failed, or 2 for wrong usage.\n";

static void print_usage(FILE *to)
{
	const struct pinshim_aio_options options = PINSHIM_AIO_DEFAULTS;

	fprintf(to, usage, options.block_size >> 10, options.queue_depth, options.threads,
		options.single_submit, options.overlap_events, LOOPS_UNLESS_SAID);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double speed(uint64_t bytes, double seconds)
{
	return seconds > 0 ? (double)bytes / seconds / GB : 0;
}

static void show_progress(struct progress *progress, double seconds)
{
	const uint64_t done = pinshim_aio_transferred(progress->handle) - progress->before;
	const double part = (double)done / (double)progress->total;

	fprintf(stderr, "\r%s %.1f of %.1f GB, %.2f GB/sec, %.0f sec left \033[K", progress->does,
		(double)done / GB, (double)progress->total / GB, speed(done, seconds),
		done ? seconds / part - seconds : 0);
	progress->shown = true;
}

static void *progress_thread(void *argument)
{
	struct progress *progress = argument;
	const double began = now();
	struct timespec next;

	clock_gettime(CLOCK_REALTIME, &next);
	next.tv_sec += SECONDS_UNTIL_LONG;
	pthread_mutex_lock(&progress->lock);
	while (!progress->stopped) {
		if (pthread_cond_timedwait(&progress->stop, &progress->lock, &next) == ETIMEDOUT) {
			show_progress(progress, now() - began);
			next.tv_sec++;
		}
	}
	pthread_mutex_unlock(&progress->lock);
	return NULL;
}

/* For a terminal only. Whether there is one now, for progress_end(). */
static bool progress_begin(struct progress *progress)
{
	if (!isatty(STDERR_FILENO))
		return false;
	progress->before = pinshim_aio_transferred(progress->handle);
	pthread_mutex_init(&progress->lock, NULL);
	pthread_cond_init(&progress->stop, NULL);
	return pthread_create(&progress->thread, NULL, progress_thread, progress) == 0;
}

static void progress_end(struct progress *progress)
{
	pthread_mutex_lock(&progress->lock);
	progress->stopped = true;
	pthread_cond_signal(&progress->stop);
	pthread_mutex_unlock(&progress->lock);
	pthread_join(progress->thread, NULL);
	if (progress->shown)
		fputs("\r\033[K", stderr);
}

/* Does it once. Whether all of it was transferred; says why not. */
static bool transfer(struct io *io, bool write)
{
	char *buffer = io->memory + io->misaligned;
	const uint32_t flags = io->validate ? PINSHIM_AIO_VALIDATE : 0;
	struct pinshim_aio_result result;
	int64_t bytes;

	if (io->file && write)
		bytes = pinshim_aio_sync_pwrite(io->handle, buffer, io->size, io->file, io->offset,
						flags, &result);
	else if (io->file)
		bytes = pinshim_aio_sync_pread(io->handle, buffer, io->size, io->file, io->offset,
					       flags, &result);
	else if (write)
		bytes = pinshim_aio_sync_pwrite_fd(io->handle, buffer, io->size, io->fd, io->offset,
						   flags, &result);
	else
		bytes = pinshim_aio_sync_pread_fd(io->handle, buffer, io->size, io->fd, io->offset,
						  flags, &result);
	if (bytes < 0)
		fprintf(stderr, "pinshim io: %s at offset %" PRIu64 ", %" PRIu64 " bytes: %s\n",
			result.file, result.failed_offset, result.failed_length, result.reason);
	else if ((uint64_t)bytes < io->size)
		fprintf(stderr, "pinshim io: %s ends at %" PRIu64 ": nothing is measured\n",
			result.file, io->offset + result.bytes);
	return bytes >= 0 && (uint64_t)bytes == io->size;
}

static bool measure(struct io *io, bool write, struct measure *measure)
{
	struct progress progress = {
		.does = write ? "written" : "read",
		.handle = io->handle,
		.total = io->size * io->loops,
	};
	const bool showing = progress_begin(&progress);
	const double began = now();
	bool good = true;

	*measure = (struct measure){ 0 };
	for (uint64_t i = 0; good && i < io->loops; i++) {
		const double before = now();

		good = transfer(io, write);
		measure->task += now() - before;
		measure->bytes += io->size;
	}
	measure->e2e = now() - began;
	if (showing)
		progress_end(&progress);
	return good;
}

static void print_lines(const char *does, const struct measure *measure)
{
	printf("Task %s Latency = %.9f sec\n", does, measure->task);
	printf("Task %s Speed = %.9f GB/sec\n", does, speed(measure->bytes, measure->task));
	printf("E2E %s Latency = %.9f sec\n", does, measure->e2e);
	printf("E2E %s Speed = %.9f GB/sec\n", does, speed(measure->bytes, measure->e2e));
}

static void print_json(const char *does, const struct measure *measure)
{
	printf(", \"%s\": {\"bytes\": %" PRIu64 ", \"task_latency_seconds\": %.9f, "
	       "\"task_speed_gb_per_second\": %.9f, \"e2e_latency_seconds\": %.9f, "
	       "\"e2e_speed_gb_per_second\": %.9f}",
	       does, measure->bytes, measure->task, speed(measure->bytes, measure->task),
	       measure->e2e, speed(measure->bytes, measure->e2e));
}

static void print_json_settings(const struct io *io)
{
	printf("{\"schema\": 1, \"size_bytes\": %" PRIu64 ", \"offset_bytes\": %" PRIu64
	       ", \"loops\": %" PRIu64 ", \"block_size_bytes\": %" PRIu64
	       ", \"queue_depth\": %" PRIu32 ", \"threads\": %" PRIu32
	       ", \"single_submit\": %s, \"overlap_events\": %s, \"misaligned_bytes\": %" PRIu64
	       ", \"locked_memory\": %s, \"validate\": %s",
	       io->size, io->offset, io->loops, io->options.block_size, io->options.queue_depth,
	       io->options.threads, io->options.single_submit ? "true" : "false",
	       io->options.overlap_events ? "true" : "false", io->misaligned,
	       io->buffered_memory ? "false" : "true", io->validate ? "true" : "false");
}

/* Numbers that no file system finds anything in common in. */
static void fill(char *memory, uint64_t length)
{
	uint64_t state = 88172645463325252u;

	for (uint64_t i = 0; i < length; i += sizeof(state)) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(memory + i, &state, length - i < sizeof(state) ? length - i : sizeof(state));
	}
}

static int complain(const char *what, int error)
{
	fprintf(stderr, "pinshim io: %s: %s\n", what, strerror(error));
	return PS_EXIT_INCOMPLETE;
}

static void warn_not_direct(const char *what)
{
	fprintf(stderr, "pinshim io: %s: no direct I/O: the page cache is measured, too\n", what);
}

/* A file that nobody else sees, and that is gone when this process is. */
static int make_file(struct io *io)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof(path), "%s/pinshim-io.XXXXXX", io->directory);

	if (length >= (int)sizeof(path))
		return complain(io->directory, ENAMETOOLONG);
	io->fd = mkostemp(path, O_CLOEXEC);
	if (io->fd < 0)
		return complain(io->directory, errno);
	unlink(path);
	if (fcntl(io->fd, F_SETFL, O_DIRECT) < 0)
		warn_not_direct(io->directory);
	return PS_EXIT_OK;
}

/* Looks at the file; finds the size to read. */
static int look_at_file(struct io *io)
{
	const int fd = open(
		io->file, io->write ? O_WRONLY | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
	const off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	const int error = errno;

	if (fd >= 0)
		close(fd);
	if (fd < 0 || end < 0)
		return complain(io->file, error);
	if (io->read && !io->write) {
		if ((uint64_t)end <= io->offset || (uint64_t)end - io->offset < io->size) {
			fprintf(stderr, "pinshim io: %s: has %" PRIu64 " bytes only\n", io->file,
				(uint64_t)end);
			return PS_EXIT_INCOMPLETE;
		}
		if (io->size == 0)
			io->size = (uint64_t)end - io->offset;
	}
	if (pinshim_aio_alignment(io->file) == 1)
		warn_not_direct(io->file);
	return PS_EXIT_OK;
}

static int get_memory(struct io *io)
{
	const uint64_t length = io->size + io->misaligned;

	io->memory = length < io->size     ? NULL
		     : io->buffered_memory ? malloc(length)
					   : pinshim_aio_new_buffer(length);
	if (!io->memory)
		return complain(io->buffered_memory ? "memory for the buffer"
						    : "locked memory for the buffer",
				ENOMEM);
	fill(io->memory, length);
	return PS_EXIT_OK;
}

static int run(struct io *io)
{
	struct measure written = { 0 }, read = { 0 };

	/* What is to be read there has to be written first. */
	if (io->directory && !io->write && !transfer(io, true))
		return PS_EXIT_INCOMPLETE;
	if (io->write && !measure(io, true, &written))
		return PS_EXIT_INCOMPLETE;
	if (io->read && !measure(io, false, &read))
		return PS_EXIT_INCOMPLETE;
	if (io->json)
		print_json_settings(io);
	if (io->write)
		(io->json ? print_json : print_lines)(io->json ? "write" : "Write", &written);
	if (io->read)
		(io->json ? print_json : print_lines)(io->json ? "read" : "Read", &read);
	if (io->json)
		puts("}");
	return PS_EXIT_OK;
}

static int start(struct io *io)
{
	int status = io->file ? look_at_file(io) : make_file(io);
	int error;

	if (status != PS_EXIT_OK)
		return status;
	if (io->size == 0)
		io->size = SIZE_UNLESS_SAID;
	error = pinshim_aio_open(&io->options, sizeof(io->options), &io->handle);
	if (error == -EINVAL) {
		fputs("pinshim io: --block-size is a multiple of 512 up to 1G, --queue-depth 1 to "
		      "32768, --threads 1 to 1024\n",
		      stderr);
		return PS_EXIT_USAGE;
	}
	if (error)
		return complain("handle", -error);
	status = get_memory(io);
	if (status == PS_EXIT_OK)
		status = run(io);
	pinshim_aio_close(io->handle);
	if (io->buffered_memory)
		free(io->memory);
	else
		pinshim_aio_free_buffer(io->memory);
	if (io->directory)
		close(io->fd);
	return status;
}

enum { SINGLE_SUBMIT = 256, OVERLAP_EVENTS, MISALIGNED, BUFFERED_MEMORY, VALIDATE };

/* A number from least to most into *value. */
static bool number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	return ps_text_parse_size(text, NULL, value) == 0 && *value >= least && *value <= most;
}

static bool number32(const char *text, uint64_t most, uint32_t *value)
{
	uint64_t wide;

	if (!number(text, 0, most, &wide))
		return false;
	*value = (uint32_t)wide;
	return true;
}

/* An option with an argument. Whether the argument is good. */
static bool set_number(struct io *io, int option, const char *argument)
{
	switch (option) {
	case 's':
		return number(argument, 1, INT64_MAX, &io->size);
	case 'o':
		return number(argument, 0, INT64_MAX, &io->offset);
	case 'b':
		return number(argument, 1, INT64_MAX, &io->options.block_size);
	case 'q':
		return number32(argument, UINT32_MAX, &io->options.queue_depth);
	case 't':
		return number32(argument, UINT32_MAX, &io->options.threads);
	case 'l':
		return number(argument, 1, 1000000000, &io->loops);
	case MISALIGNED:
		return number(argument, 0, INT32_MAX, &io->misaligned);
	case SINGLE_SUBMIT:
		return number32(argument ? argument : "1", 1, &io->options.single_submit);
	case OVERLAP_EVENTS:
		return number32(argument ? argument : "1", 1, &io->options.overlap_events);
	default:
		return false;
	}
}

/* Sets what an option asks for; false for a number that is not good or an option that is unknown. */
static bool set_option(struct io *io, int option, const char *argument)
{
	switch (option) {
	case 'r':
		io->read = true;
		return true;
	case 'w':
		io->write = true;
		return true;
	case 'f':
		io->file = argument;
		return true;
	case 'd':
		io->directory = argument;
		return true;
	case 'j':
		io->json = true;
		return true;
	case BUFFERED_MEMORY:
		io->buffered_memory = true;
		return true;
	case VALIDATE:
		io->validate = true;
		return true;
	default:
		return set_number(io, option, argument);
	}
}

static const struct option options[] = {
	{ "read", no_argument, NULL, 'r' },
	{ "write", no_argument, NULL, 'w' },
	{ "file", required_argument, NULL, 'f' },
	{ "directory", required_argument, NULL, 'd' },
	{ "size", required_argument, NULL, 's' },
	{ "offset", required_argument, NULL, 'o' },
	{ "block-size", required_argument, NULL, 'b' },
	{ "queue-depth", required_argument, NULL, 'q' },
	{ "threads", required_argument, NULL, 't' },
	{ "single-submit", optional_argument, NULL, SINGLE_SUBMIT },
	{ "overlap-events", optional_argument, NULL, OVERLAP_EVENTS },
	{ "loops", required_argument, NULL, 'l' },
	{ "misaligned", required_argument, NULL, MISALIGNED },
	{ "buffered-memory", no_argument, NULL, BUFFERED_MEMORY },
	{ "validate", no_argument, NULL, VALIDATE },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Says why the command line is not good, and returns its exit status. */
static int refuse(const char *why, const char *what)
{
	fprintf(stderr, "pinshim io: %s%s\n", why, what);
	print_usage(stderr);
	return PS_EXIT_USAGE;
}

int ps_tool_io(int argc, char **argv)
{
	struct io io = { .options = PINSHIM_AIO_DEFAULTS, .loops = LOOPS_UNLESS_SAID, .fd = -1 };

	for (int c; (c = getopt_long(argc, argv, "rwf:d:s:o:b:q:t:l:jh", options, NULL)) != -1;) {
		if (c == 'h') {
			print_usage(stdout);
			return PS_EXIT_OK;
		}
		if (c == '?') {
			print_usage(stderr);
			return PS_EXIT_USAGE;
		}
		if (!set_option(&io, c, optarg))
			return refuse("not a number in range: ", optarg ? optarg : "");
	}
	if (optind < argc)
		return refuse("there is nothing to do with ", argv[optind]);
	if (!io.read && !io.write)
		return refuse("--read or --write?", "");
	if (!io.file == !io.directory)
		return refuse("--file or --directory?", "");
	return start(&io);
}
