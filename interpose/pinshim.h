/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PINSHIM_H
#define PINSHIM_H
/*
 * pinshim's interface for programs that want to ask or decide for themselves.
 *
 * No library needs to be linked: each function looks for libpinshim.so, which LD_PRELOAD brought
 * into the process, at its first call. A program that includes this header therefore also runs
 * without the shim: pinshim_present() is 0 then, pointers come back NULL with errno ENOSYS, and
 * functions that return an int return -ENOSYS; pinshim_is_pinned() says 0.
 *
 * "Pinned" means locked in memory: never paged out. Locked memory is also registered with the CUDA
 * driver only where pinshim_stats.registered_bytes says so; without that GPU copies of it are as
 * slow as from pageable memory.
 *
 * All functions may be called from any thread at any time, except from signal handlers. Functions
 * returning int return 0 or a negative errno value; errno itself is set only by those that return
 * pointers, and only when they return NULL.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of this process. New members are added at the end; see pinshim_stats(). */
struct pinshim_stats {
	uint64_t pinned_bytes;      /* now, all of the following together */
	uint64_t pinned_peak_bytes; /* the most it ever was */
	uint64_t locked_bytes;      /* of the heap: locked */
	uint64_t registered_bytes;  /* registered with the CUDA driver */
	uint64_t huge_bytes;        /* of the heap: in huge pages when it was pinned */
	uint64_t foreign_bytes;     /* the program's own memory, pinned where it is */
	uint64_t retained_bytes;    /* of the heap: freed large blocks kept for reuse */
	uint64_t live_bytes;        /* in blocks that were served and not freed */
	uint64_t live_blocks;       /* how many these are */
	uint64_t served;            /* requests served, ever */
	uint64_t fallback;          /* requests that got ordinary memory instead, ever */
	uint64_t failed;            /* requests answered with an error, ever */
	uint64_t refused;           /* pins refused by a limit, ever */
};

#ifndef PINSHIM_IMPLEMENTATION

#include <dlfcn.h>

/* The symbol in the process, looked up once a call site's function; NULL without the shim. */
static inline void *pinshim_symbol_(const char *name, void **cache)
{
	void *found = __atomic_load_n(cache, __ATOMIC_RELAXED);

	if (found == NULL) {
		found = dlsym(NULL /* RTLD_DEFAULT */, name);
		__atomic_store_n(cache, found, __ATOMIC_RELAXED);
	}
	return found;
}

#define PINSHIM_CALL_(name, result, parameters, arguments, absent)                                 \
	static inline result name parameters                                                       \
	{                                                                                          \
		static void *cache;                                                                \
		union {                                                                            \
			void *symbol;                                                              \
			result(*call) parameters;                                                  \
		} function;                                                                        \
		function.symbol = pinshim_symbol_(#name, &cache);                                  \
		if (function.symbol == NULL)                                                       \
			return absent;                                                             \
		return function.call arguments;                                                    \
	}
#define PINSHIM_NO_POINTER_ (errno = ENOSYS, (void *)NULL)

#else

#define PINSHIM_CALL_(name, result, parameters, arguments, absent)                                 \
	__attribute__((visibility("default"))) result name parameters;

#endif

/* Is libpinshim.so in this process, and not switched off by PINSHIM_BACKEND=off? 1 or 0. */
PINSHIM_CALL_(pinshim_present, int, (void), (), 0)

/*
 * Is every byte of [address, address+length) pinned? 1 or 0. Any address may be asked about, also
 * one that is not mapped; it is not touched. length 0 asks about one byte. In a forked child the
 * parent's memory is not pinned.
 */
PINSHIM_CALL_(pinshim_is_pinned, int, (const void *address, size_t length), (address, length), 0)

/*
 * A pinned block of size bytes (0 counts as 1) at a multiple of alignment, a power of two; 0 asks for
 * the default: a page from 4 KiB on, 512 bytes below. Free it with pinshim_free().
 * A forked child has a copy of its own, as of malloc()'s memory. If a GPU's driver has registered the
 * block, fork() itself makes that copy. (CUDA host memory is shared with children instead.)
 * NULL with errno EINVAL (alignment), ENOMEM (a limit refused; said once on stderr), ENOSYS.
 */
PINSHIM_CALL_(pinshim_alloc, void *, (size_t size, size_t alignment), (size, alignment),
	      PINSHIM_NO_POINTER_)

/*
 * Frees what pinshim_alloc() or pinshim_pin_copy() returned; NULL is allowed. 0; -EINVAL for memory
 * that is not pinshim's; any other address in the heap that is no such block ends the process, as
 * free() does.
 */
PINSHIM_CALL_(pinshim_free, int, (void *block), (block), -ENOSYS)

/*
 * Pins memory of the program where it is: the pages that contain [address, address+length), each
 * with a count. Memory that is pinned already by the heap needs nothing and succeeds.
 * 0; -EINVAL (length 0, NULL, wrap-around), -EFAULT (not mapped), -ENOMEM (a limit refused).
 */
PINSHIM_CALL_(pinshim_pin, int, (const void *address, size_t length), (address, length), -ENOSYS)

/*
 * Undoes one pinshim_pin() of these pages; they are unlocked when their last pin goes. Memory that
 * is unmapped or freed while pinned is dropped by itself. 0; -EINVAL when a page is not pinned.
 */
PINSHIM_CALL_(pinshim_unpin, int, (const void *address, size_t length), (address, length), -ENOSYS)

/*
 * A pinned copy of length bytes at source, to be freed with pinshim_free(). NULL as pinshim_alloc(),
 * and with EINVAL for NULL.
 */
PINSHIM_CALL_(pinshim_pin_copy, void *, (const void *source, size_t length), (source, length),
	      PINSHIM_NO_POINTER_)

/*
 * Fills *stats; size is sizeof(struct pinshim_stats) as the caller was compiled, so that programs
 * and library of different age understand each other. 0; -EINVAL (NULL or size 0).
 */
PINSHIM_CALL_(pinshim_stats, int, (struct pinshim_stats * stats, size_t size), (stats, size),
	      -ENOSYS)

/*
 * Unpins free memory: kept large blocks down to keep bytes, and every 2 MiB of which no part is in
 * use. Returns the bytes unpinned.
 */
PINSHIM_CALL_(pinshim_trim, size_t, (size_t keep), (keep), 0)

/*
 * Publishes the table of this process in /dev/shm now. It is there by itself from the first pin on;
 * libpinshim-aio.so asks for it earlier, to count in. 0; the -errno of making the file.
 */
PINSHIM_CALL_(pinshim_publish, int, (void), (), -ENOSYS)

#undef PINSHIM_CALL_
#undef PINSHIM_NO_POINTER_

#ifdef __cplusplus
}
#endif

#endif
