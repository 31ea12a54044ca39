/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_NEXT_H
#define PS_NEXT_H
/*
 * The next definition, after this library, of each function that it interposes: libc's, or that of
 * an allocator or another interposer preloaded after us.
 *
 * No member is ever NULL. Until ps_next_resolve() has run each is a stub that runs it first, so that
 * calls before our constructor work. Allocating is safe even then: looking up a symbol that exists
 * does not allocate (glibc 2.36), and should it, the request is answered by __libc_malloc.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* X(name, result, parameters, arguments): of the malloc family, resolved first. */
#define PS_NEXT_MALLOC_FAMILY(X)                                                                   \
	X(malloc, void *, (size_t size), (size))                                                   \
	X(free, void, (void *pointer), (pointer))                                                  \
	X(calloc, void *, (size_t count, size_t size), (count, size))                              \
	X(realloc, void *, (void *pointer, size_t size), (pointer, size))                          \
	X(memalign, void *, (size_t align, size_t size), (align, size))                            \
	X(posix_memalign, int, (void **pointer, size_t align, size_t size),                        \
	  (pointer, align, size))                                                                  \
	X(aligned_alloc, void *, (size_t align, size_t size), (align, size))                       \
	X(valloc, void *, (size_t size), (size))                                                   \
	X(pvalloc, void *, (size_t size), (size))                                                  \
	X(malloc_usable_size, size_t, (void *pointer), (pointer))

/* The rest. */
#define PS_NEXT_OTHERS(X)                                                                          \
	X(mlock, int, (const void *address, size_t length), (address, length))                     \
	X(mlock2, int, (const void *address, size_t length, unsigned int flags),                   \
	  (address, length, flags))                                                                \
	X(munlock, int, (const void *address, size_t length), (address, length))                   \
	X(mlockall, int, (int flags), (flags))                                                     \
	X(munlockall, int, (void), ())                                                             \
	X(madvise, int, (void *address, size_t length, int advice), (address, length, advice))     \
	X(mprotect, int, (void *address, size_t length, int protection),                           \
	  (address, length, protection))                                                           \
	X(pkey_mprotect, int, (void *address, size_t length, int protection, int key),             \
	  (address, length, protection, key))                                                      \
	X(munmap, int, (void *address, size_t length), (address, length))                          \
	X(mmap, void *,                                                                            \
	  (void *address, size_t length, int protection, int flags, int fd, off_t offset),         \
	  (address, length, protection, flags, fd, offset))                                        \
	X(mmap64, void *,                                                                          \
	  (void *address, size_t length, int protection, int flags, int fd, off_t offset),         \
	  (address, length, protection, flags, fd, offset))                                        \
	X(mremap, void *, (void *old, size_t from, size_t to, int flags, void *address),           \
	  (old, from, to, flags, address))                                                         \
	X(shmat, void *, (int id, const void *address, int flags), (id, address, flags))           \
	X(shmdt, int, (const void *address), (address))                                            \
	X(brk, int, (void *address), (address))                                                    \
	X(sbrk, void *, (intptr_t increment), (increment))                                         \
	X(execve, int, (const char *path, char *const argv[], char *const envp[]),                 \
	  (path, argv, envp))                                                                      \
	X(execvpe, int, (const char *file, char *const argv[], char *const envp[]),                \
	  (file, argv, envp))                                                                      \
	X(fexecve, int, (int fd, char *const argv[], char *const envp[]), (fd, argv, envp))        \
	X(execveat, int,                                                                           \
	  (int fd, const char *path, char *const argv[], char *const envp[], int flags),           \
	  (fd, path, argv, envp, flags))                                                           \
	X(_exit, void, (int status), (status))                                                     \
	X(exit, void, (int status), (status))                                                      \
	X(quick_exit, void, (int status), (status))                                                \
	X(setrlimit, int, (__rlimit_resource_t resource, const struct rlimit *limit),              \
	  (resource, limit))                                                                       \
	X(prlimit, int,                                                                            \
	  (pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit,                    \
	   struct rlimit *old),                                                                    \
	  (pid, resource, limit, old))                                                             \
	X(dlopen, void *, (const char *file, int mode), (file, mode))

#define PS_NEXT_MEMBER(name, result, parameters, arguments) result(*name) parameters;

struct ps_next {
	PS_NEXT_MALLOC_FAMILY(PS_NEXT_MEMBER)
	PS_NEXT_OTHERS(PS_NEXT_MEMBER)
};

/* Hidden also where it is only declared: a jump through it is one instruction then. */
extern struct ps_next ps_next __attribute__((visibility("hidden")));

/*
 * Looks everything up. May run several times and in several threads: each does the same. Where a
 * libc lacks a function (cfree, pvalloc) the member becomes one that answers as a failure.
 */
void ps_next_resolve(void);

#endif
