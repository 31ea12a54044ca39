/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "budget.h"
#include "config.h"
#include "counters.h"
#include "heap.h"
#include "held.h"
#include "log.h"
#include "os.h"
#include "registration.h"
#include "table.h"
#include "window.h"

#define PAGE ((size_t)4096)

/* The allocator in this library. */
enum own { OWN_NOT_STARTED, OWN_STARTED, OWN_IMPOSSIBLE };

static struct {
	/* Functions of pinshim.h; all of libpinshim.so, or all NULL. */
	void *(*alloc)(size_t size, size_t alignment);
	int (*free)(void *block);
	int (*is_pinned)(const void *address, size_t length);
	int (*publish)(void);

	struct ps_lock lock;
	atomic_int own; /* enum own; leaves OWN_NOT_STARTED under the lock */
} memory;

void ps_memory_start(void)
{
	*(void **)&memory.alloc = dlsym(RTLD_DEFAULT, "pinshim_alloc");
	*(void **)&memory.free = dlsym(RTLD_DEFAULT, "pinshim_free");
	*(void **)&memory.is_pinned = dlsym(RTLD_DEFAULT, "pinshim_is_pinned");
	*(void **)&memory.publish = dlsym(RTLD_DEFAULT, "pinshim_publish");
	if (memory.free == NULL || memory.is_pinned == NULL || memory.publish == NULL)
		memory.alloc = NULL;
}

bool ps_memory_is_shared(void)
{
	return memory.alloc != NULL;
}

void ps_memory_publish(void)
{
	if (memory.alloc != NULL)
		(void)memory.publish();
}

bool ps_memory_is_own(void)
{
	return atomic_load_explicit(&memory.own, memory_order_acquire) == OWN_STARTED;
}

static enum own start_own(void)
{
	if (ps_config.backend == PS_BACKEND_OFF)
		return OWN_IMPOSSIBLE;
	/* Without memory for a table of its own there still is the static one. */
	(void)ps_table_start();
	if (ps_window_reserve(ps_config_ram()) == 0)
		return OWN_STARTED;
	ps_log(PS_LOG_WARN,
	       "no buffer for I/O will be pinned: reserving addresses for the heap failed: raise the "
	       "limit on address space (ulimit -v)");
	return OWN_IMPOSSIBLE;
}

/* Is there a heap in this library? Starts it at the first call. */
static bool have_own(void)
{
	enum own own = (enum own)atomic_load_explicit(&memory.own, memory_order_acquire);

	if (own != OWN_NOT_STARTED)
		return own == OWN_STARTED;
	ps_hold(&memory.lock);
	own = (enum own)atomic_load_explicit(&memory.own, memory_order_relaxed);
	if (own == OWN_NOT_STARTED) {
		own = start_own();
		atomic_store_explicit(&memory.own, own, memory_order_release);
	}
	ps_let_go(&memory.lock);
	return own == OWN_STARTED;
}

static void *alloc_own(size_t length, size_t align)
{
	struct ps_refusal why;
	void *block = ps_registration_alloc(PINSHIM_ENTRY_PINSHIM_ALLOC, length, align, &why);

	if (block == NULL) {
		ps_count_failed(PINSHIM_ENTRY_PINSHIM_ALLOC);
		ps_budget_refuse(&why, "memory that is not pinned");
	}
	return block;
}

void *ps_memory_alloc(size_t length, size_t align)
{
	const int saved = errno;
	void *block;

	if (memory.alloc == NULL)
		return have_own() ? alloc_own(length, align) : NULL;
	block = memory.alloc(length, align);
	errno = saved;
	return block;
}

void ps_memory_free(void *block)
{
	if (memory.alloc != NULL)
		(void)memory.free(block);
	else if (block != NULL)
		ps_heap_free(block, "freeing a buffer for I/O");
}

/* Ordinary memory: as much more as aligning it may take is mapped and given back. */
static void *map(size_t length, size_t align)
{
	const size_t rest = align > PAGE ? align - PAGE : 0;
	uintptr_t base, begin;
	void *mapped;

	if (ps_os_mmap(NULL, length + rest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0, &mapped) < 0)
		return NULL;
	base = (uintptr_t)mapped;
	begin = (base + align - 1) & ~(uintptr_t)(align - 1);
	if (begin > base)
		ps_os_munmap(mapped, begin - base);
	if (base + rest > begin)
		ps_os_munmap((void *)(begin + length), base + rest - begin);
	return (void *)begin;
}

static size_t whole_pages(size_t length)
{
	return (length + (length == 0) + PAGE - 1) & ~(PAGE - 1);
}

void *ps_memory_alloc_any(size_t length, size_t align, bool *pinned)
{
	void *block = ps_memory_alloc(length, align);

	*pinned = block != NULL;
	return *pinned ? block : map(whole_pages(length), align);
}

void ps_memory_free_any(void *block, size_t length, bool pinned)
{
	if (pinned)
		ps_memory_free(block);
	else if (block != NULL)
		ps_os_munmap(block, whole_pages(length));
}

bool ps_memory_is_pinned(const void *address, size_t length)
{
	if (memory.alloc != NULL)
		return memory.is_pinned(address, length) != 0;
	return ps_memory_is_own() && ps_heap_is_pinned(address, length);
}

void ps_memory_fork_prepare(void)
{
	ps_hold(&memory.lock);
	if (!ps_memory_is_own())
		return;
	ps_heap_fork_prepare();
	ps_table_fork_prepare();
}

void ps_memory_fork_parent(void)
{
	if (ps_memory_is_own()) {
		if (ps_count_get(&ps_table()->locked_bytes) > 0)
			ps_count_add(&ps_table()->fork_children, 1);
		ps_table_fork_parent();
		ps_heap_fork_parent();
	}
	ps_let_go(&memory.lock);
}

void ps_memory_fork_child(void)
{
	ps_lock_reset(&memory.lock);
	if (ps_memory_is_own())
		ps_fork_child();
}
