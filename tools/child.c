/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os.h"

/* Reads to the end, or size bytes. How many they were. */
static size_t read_all(int fd, void *to, size_t size)
{
	size_t length = 0;
	ssize_t got;

	while (length < size && (got = ps_os_read(fd, (char *)to + length, size - length)) > 0)
		length += (size_t)got;
	return length;
}

size_t ps_child_read(int fd, char *buffer, size_t size)
{
	const size_t length = read_all(fd, buffer, size - 1);

	buffer[length] = '\0';
	return length;
}

bool ps_child_wait(pid_t child, struct ps_text *why)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		ps_text_add(why, "the child process did not come to an end");
	else if (WIFSIGNALED(status))
		ps_text_add(why, "the child process was ended by signal %d (%s)", WTERMSIG(status),
			    strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) != 0)
		ps_text_add(why, "the child process ended with status %d", WEXITSTATUS(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool ps_child_ask(void (*work)(void *result), void *result, size_t size, unsigned seconds,
		  struct ps_text *why)
{
	int ends[2];
	bool whole;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) < 0) {
		ps_text_add(why, "no pipe can be made: %s", strerrordesc_np(errno));
		return false;
	}
	child = fork();
	if (child == 0) {
		alarm(seconds);
		work(result);
		_exit(ps_os_write_all(ends[1], result, size) < 0);
	}
	close(ends[1]);
	if (child < 0)
		ps_text_add(why, "no child process can be made: %s", strerrordesc_np(errno));
	whole = child > 0 && read_all(ends[0], result, size) == size;
	close(ends[0]);
	return child > 0 && ps_child_wait(child, why) && whole;
}
