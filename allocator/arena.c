/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc arenas and their extent hooks.
 *
 * Locks: the hooks run with locks of jemalloc held. They take the carve lock of their heap (below),
 * and under it the window's, through chunk.h. Nothing here calls back into jemalloc from a hook: a
 * mallocx() there would silently return memory from outside the window.
 *
 * What the hooks promise, with jemalloc 5.3.0 in mind:
 *   - alloc grants new_addr only where the next extent would be carved, so that a block that grows
 *     last of all grows in place;
 *   - dalloc accepts everything: with decay off it is called in a trim and nowhere else;
 *   - purge and decommit do not exist: locked pages cannot be dropped, and a success without
 *     zeroing would make calloc return old data;
 *   - split is always allowed, merge only inside a chunk: no block straddles two registrations.
 */
#include "arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "jemalloc_private.h"
#include "log.h"
#include "os.h"
#include "own_stack.h"
#include "slab.h"
#include "syscall.h"
#include "window.h"

/* What jemalloc maps at its start, at most. */
#define START_BYTES ((size_t)8 << 20)

#define ARENAS_MAX 8

/* A chunk is at most this many granules larger than asked for. */
#define GROWTH_MAX 32
/* ... and at most this part of what the heap has, so that the unused rest stays small. */
#define GROWTH_PART 16

/* After a refusal a heap does not ask for another chunk for this long, unless a large block is freed. */
#define REFUSED_NS (100 * (uint64_t)1000000)

const char *psje_malloc_conf_2_conf_harder =
	"abort:false,abort_conf:false,background_thread:false,confirm_conf:false,"
	"dirty_decay_ms:-1,muzzy_decay_ms:0,metadata_thp:disabled,narenas:1,prof:false,"
	"retain:false,stats_print:false,tcache:false,thp:default";

/* What an arena's hooks need to know of their heap. */
struct heap_state {
	extent_hooks_t hooks;   /* first, so that a hook finds its heap from the pointer it gets */
	struct ps_lock carve;   /* guards next, end, slab_granules and refusal */
	char *next, *end;       /* unused rest of the chunk that extents are carved from */
	uint64_t slab_granules; /* in chunks of this heap, for the growth rule */
	struct ps_refusal refusal;          /* the last */
	atomic_uint_fast64_t refused_until; /* coarse monotonic ns; 0: ask */
	atomic_size_t no_block;     /* requests of this size and more found nothing in any arena */
	atomic_uint arenas;         /* how many were made; 0 before the first use and after fork */
	unsigned index[ARENAS_MAX]; /* jemalloc's numbers of them */
	struct {
		unsigned arenas,
			index[ARENAS_MAX]; /* the parent's, if this is a forked child ... */
		char *next, *end;          /* ... and the rest of its chunk */
	} inherited;
};

static struct heap_state heaps[PS_HEAPS] = {
	[PS_HEAP_MALLOC] = { .no_block = SIZE_MAX },
	[PS_HEAP_PINSHIM] = { .no_block = SIZE_MAX },
	[PS_HEAP_CUDA] = { .no_block = SIZE_MAX },
};

/*
 * jemalloc is first called, and its arenas are made, under this lock, and a fork waits for that: before
 * a fork jemalloc counts its arenas without a lock, so one made just then would be unlocked after it
 * without having been locked. Outside jemalloc's locks.
 *
 * Its handlers of fork are called by ours instead of by the C library: registered at the first use
 * they might or might not be part of a fork that another thread is in the middle of, and the locks that
 * they take could not be ordered.
 */
static struct {
	struct ps_lock lock;
	bool ready;
	bool forking; /* between the handlers before and after a fork */
	void (*prepare)(void), (*parent)(void), (*child)(void); /* NULL before jemalloc's start */
} jemalloc_start;

/* What jemalloc calls for pthread_atfork(); scripts/private-jemalloc sees to that. */
int psje_os_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

int psje_os_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	jemalloc_start.prepare = prepare;
	jemalloc_start.parent = parent;
	jemalloc_start.child = child;
	return 0;
}

static struct heap_state *state_of(extent_hooks_t *hooks)
{
	return (struct heap_state *)hooks;
}

static enum ps_heap heap_of(const struct heap_state *heap)
{
	return (enum ps_heap)(heap - heaps);
}

/* Is the next chunk refused without asking? Then freeing something is of no use either. */
static bool refused_lately(struct heap_state *heap)
{
	uint64_t until = atomic_load_explicit(&heap->refused_until, memory_order_relaxed);

	return until != 0 && until >= ps_os_now_coarse();
}

/* Pins a chunk to carve from, for an extent of size bytes. Carve lock held. 0 or -ENOMEM. */
static int new_chunk(struct heap_state *heap, size_t size, size_t align)
{
	const uint32_t need = (uint32_t)((size + PS_GRANULE - 1) >> PS_GRANULE_SHIFT);
	const uint32_t granule_align = align > PS_GRANULE ? (uint32_t)(align >> PS_GRANULE_SHIFT)
							  : 1;
	uint64_t grown = heap->slab_granules / GROWTH_PART;
	uint32_t count, first;
	int r;

	if (grown > GROWTH_MAX)
		grown = GROWTH_MAX;
	count = need > grown ? need : (uint32_t)grown;
	do {
		r = ps_chunk_new(count, granule_align,
				 PS_GRANULE_SLAB | ps_granule_flags(heap_of(heap)), &first,
				 &heap->refusal);
		if (r < 0 && count == need)
			return r;
		count = r < 0 ? need : count;
	} while (r < 0);
	heap->slab_granules += count;
	if (heap->end > heap->next)
		ps_slab_give(heap->next, (size_t)(heap->end - heap->next));
	heap->next = ps_granule_address(first);
	heap->end = heap->next + ((size_t)count << PS_GRANULE_SHIFT);
	return 0;
}

/* Where in the current chunk an extent would begin; NULL if it does not fit. Carve lock held. */
static char *place(const struct heap_state *heap, size_t size, size_t align)
{
	const uintptr_t at = ((uintptr_t)heap->next + align - 1) & ~(align - 1);

	if (heap->next == NULL || at + size > (uintptr_t)heap->end)
		return NULL;
	return (char *)at;
}

/* The next place of the chunk that is carved, or of a new one. Carve lock held. NULL if refused. */
static char *carve(struct heap_state *heap, size_t size, size_t align)
{
	char *at = place(heap, size, align);

	if (at == NULL && !refused_lately(heap)) {
		if (new_chunk(heap, size, align) == 0)
			at = place(heap, size, align);
		else
			atomic_store(&heap->refused_until, ps_os_now_coarse() + REFUSED_NS);
	}
	if (at == NULL)
		return NULL;
	if (at > heap->next)
		ps_slab_give(heap->next, (size_t)(at - heap->next));
	heap->next = at + size;
	return at;
}

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t size, size_t align,
			bool *zero, bool *commit, unsigned arena)
{
	struct heap_state *heap = state_of(hooks);
	char *at = NULL;

	(void)arena;
	*commit = true;
	ps_lock(&heap->carve);
	if (new_addr != NULL ? place(heap, size, align) != new_addr
			     : (at = ps_slab_reuse(heap_of(heap), size, align)) != NULL) {
		ps_unlock(&heap->carve);
		if (at != NULL && *zero)
			memset(at, 0, size);
		return at;
	}
	at = carve(heap, size, align);
	ps_unlock(&heap->carve);
	*zero = true; /* carved for the first time since the chunk was pinned */
	return at;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *addr, size_t size, bool committed,
			unsigned arena)
{
	(void)hooks;
	(void)committed;
	(void)arena;
	ps_slab_give(addr, size);
	return false;
}

static void hook_destroy(extent_hooks_t *hooks, void *addr, size_t size, bool committed,
			 unsigned arena)
{
	(void)hook_dalloc(hooks, addr, size, committed, arena);
}

static bool hook_commit(extent_hooks_t *hooks, void *addr, size_t size, size_t offset,
			size_t length, unsigned arena)
{
	(void)hooks, (void)addr, (void)size, (void)offset, (void)length, (void)arena;
	return false;
}

static bool hook_split(extent_hooks_t *hooks, void *addr, size_t size, size_t left, size_t right,
		       bool committed, unsigned arena)
{
	(void)hooks, (void)addr, (void)size, (void)left, (void)right, (void)committed, (void)arena;
	return false;
}

/*
 * The chunk that an address of a live extent lies in. No lock: another thread may be cutting granules
 * out of the chunk, so that one of two neighbours has its new number first; then they are not merged,
 * which is allowed. Numbers of two different chunks are never the same.
 */
static uint32_t chunk_of(const void *address)
{
	return __atomic_load_n(&ps_window.run[ps_granule_of(address)].first, __ATOMIC_RELAXED);
}

static bool hook_merge(extent_hooks_t *hooks, void *left, size_t left_size, void *right,
		       size_t right_size, bool committed, unsigned arena)
{
	(void)hooks, (void)left_size, (void)right_size, (void)committed, (void)arena;
	return chunk_of(left) != chunk_of(right);
}

/* Makes one arena. 0, or -ENOMEM when jemalloc cannot. */
static int make_arena(struct heap_state *heap, unsigned *index)
{
	struct arena_config_s config = { .extent_hooks = &heap->hooks,
					 .metadata_use_hooks = false };
	size_t length = sizeof(*index);

	return psje_mallctl("experimental.arenas_create_ext", index, &length, &config,
			    sizeof(config)) == 0
		       ? 0
		       : -ENOMEM;
}

/* As many as the process may use processors. */
static unsigned arenas_wanted(void)
{
	unsigned long mask[128] = { 0 };
	unsigned cores = 0;

	if (ps_syscall3(SYS_sched_getaffinity, 0, sizeof(mask), mask) < 0)
		return ARENAS_MAX;
	for (size_t i = 0; i < sizeof(mask) / sizeof(mask[0]); i++)
		cores += (unsigned)__builtin_popcountl(mask[i]);
	return cores < ARENAS_MAX ? cores : ARENAS_MAX;
}

/* Is there room for what jemalloc maps at its start? It does not survive there being none. */
static bool has_room(void)
{
	void *memory;

	if (ps_os_mmap(NULL, START_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0, &memory) < 0)
		return false;
	ps_os_munmap(memory, START_BYTES);
	return true;
}

/* jemalloc's first call. Its start lock held. false where it cannot start now. */
static bool start_jemalloc(void)
{
	const char *version;
	size_t length = sizeof(version);

	if (jemalloc_start.ready)
		return true;
	if (!has_room())
		return false;
	/* An extra page for each block would double the cost of small ones (jemalloc#1098). */
	psje_opt_cache_oblivious = false;
	psje_mallctl("version", &version, &length, NULL, 0);
	jemalloc_start.ready = true;
	return true;
}

static void purge(unsigned index)
{
	size_t mib[3], length = 3;

	if (psje_mallctlnametomib("arena.0.purge", mib, &length) != 0)
		return;
	mib[1] = index;
	psje_mallctlbymib(mib, length, NULL, NULL, NULL, 0);
}

/* Gives back what was free in the parent's arenas, which serve nothing here any more. */
static void give_inherited(struct heap_state *heap)
{
	for (unsigned i = 0; i < heap->inherited.arenas; i++)
		purge(heap->inherited.index[i]);
	if (heap->inherited.arenas > 0 && heap->inherited.end > heap->inherited.next)
		ps_slab_give(heap->inherited.next,
			     (size_t)(heap->inherited.end - heap->inherited.next));
	heap->inherited.arenas = 0;
}

/* Makes a heap's arenas. jemalloc's start lock held. */
static void make_arenas_locked(void *argument)
{
	struct heap_state *heap = argument;
	const unsigned wanted = arenas_wanted();
	unsigned made = 0;

	if (!start_jemalloc())
		return;
	give_inherited(heap);
	heap->hooks = (extent_hooks_t){
		.alloc = hook_alloc,
		.dalloc = hook_dalloc,
		.destroy = hook_destroy,
		.commit = hook_commit,
		.split = hook_split,
		.merge = hook_merge,
	};
	while (made < wanted && make_arena(heap, &heap->index[made]) == 0)
		made++;
	atomic_store(&heap->arenas, made);
}

/* Makes the heap's arenas at its first use. Returns how many there are; 0 if none could be made. */
static unsigned make_arenas(struct heap_state *heap)
{
	unsigned made;

	ps_lock(&jemalloc_start.lock);
	if (atomic_load(&heap->arenas) == 0)
		ps_on_own_stack(make_arenas_locked, heap);
	made = atomic_load(&heap->arenas);
	ps_unlock(&jemalloc_start.lock);
	return made;
}

/* Gives each thread an arena of its own as long as there are enough. */
static unsigned choose_arena(void)
{
	static atomic_uint turn;

	ps_thread.arena = (uint16_t)(1 + atomic_fetch_add(&turn, 1) % ARENAS_MAX);
	return ps_thread.arena;
}

static int lg(size_t align)
{
	return __builtin_ctzl(align);
}

/* Asks one arena after the other, this thread's first. */
static void *try_arenas(struct heap_state *heap, unsigned arenas, size_t size, int flags)
{
	unsigned mine = ps_thread.arena != 0 ? ps_thread.arena : choose_arena();

	for (unsigned i = 0; i < arenas; i++) {
		void *block = psje_mallocx(
			size, flags | MALLOCX_ARENA(heap->index[(mine - 1 + i) % arenas]));

		if (block == NULL)
			continue;
		if (ps_in_window(block))
			return block;
		/* Never seen; jemalloc's own arena would be the only place it can come from. */
		psje_dallocx(block, MALLOCX_TCACHE_NONE);
		return NULL;
	}
	return NULL;
}

/* Why nothing of size bytes was to be had: what was refused last, or memory for jemalloc itself. */
static void last_refusal(struct heap_state *heap, size_t size, struct ps_refusal *why)
{
	ps_lock(&heap->carve);
	*why = heap->refusal;
	ps_unlock(&heap->carve);
	if (why->asked == 0)
		ps_budget_kernel_refused("mmap", ENOMEM, size, why);
}

void *ps_arena_alloc(enum ps_heap which, size_t size, size_t align, bool zero,
		     struct ps_refusal *why)
{
	struct heap_state *heap = &heaps[which];
	unsigned arenas = atomic_load_explicit(&heap->arenas, memory_order_acquire);
	const int flags = MALLOCX_TCACHE_NONE | MALLOCX_LG_ALIGN(lg(align)) |
			  (zero ? MALLOCX_ZERO : 0);
	const bool knew = refused_lately(heap);
	void *block;

	if (knew && size >= atomic_load_explicit(&heap->no_block, memory_order_relaxed)) {
		last_refusal(heap, size, why);
		return NULL;
	}
	if (arenas == 0)
		arenas = make_arenas(heap);
	block = try_arenas(heap, arenas, size, flags);
	if (block != NULL)
		return block;
	last_refusal(heap, size, why);
	if (!knew && ps_heap_make_room(why)) {
		block = try_arenas(heap, arenas, size, flags);
		if (block == NULL)
			last_refusal(heap, size, why);
	}
	if (block == NULL)
		ps_fits_not(&heap->no_block, size);
	return block;
}

void ps_arena_free(void *block)
{
	psje_dallocx(block, MALLOCX_TCACHE_NONE);
	for (unsigned h = 0; h < PS_HEAPS; h++)
		ps_fits_again(&heaps[h].no_block);
}

size_t ps_arena_size(const void *block)
{
	return psje_sallocx(block, 0);
}

size_t ps_arena_resize(void *block, size_t size)
{
	return psje_xallocx(block, size, 0, MALLOCX_TCACHE_NONE);
}

/* The rest of the current chunk goes back too; the next extent begins a new chunk. */
static void give_rest(struct heap_state *heap)
{
	ps_lock(&heap->carve);
	if (heap->end > heap->next)
		ps_slab_give(heap->next, (size_t)(heap->end - heap->next));
	heap->next = heap->end = NULL;
	heap->slab_granules = 0;
	ps_unlock(&heap->carve);
}

size_t ps_arena_trim(void)
{
	const size_t before = ps_slab_unpinned();
	bool whole = false; /* are there chunks that may have to stay whole? */

	ps_slab_give_left_behind();
	for (unsigned h = 0; h < PS_HEAPS; h++) {
		const unsigned arenas = atomic_load(&heaps[h].arenas);

		for (unsigned i = 0; i < arenas; i++)
			purge(heaps[h].index[i]);
		if (arenas > 0)
			give_rest(&heaps[h]);
		whole |= arenas > 0 && h != PS_HEAP_MALLOC;
	}
	if (whole)
		ps_slab_give_unused();
	return ps_slab_unpinned() - before;
}

void ps_arena_ask_again(void)
{
	for (unsigned h = 0; h < PS_HEAPS; h++)
		if (atomic_load_explicit(&heaps[h].refused_until, memory_order_relaxed) != 0)
			atomic_store(&heaps[h].refused_until, 0);
}

/*
 * The child makes its arenas anew, whatever state these are in.
 *
 * Until the locks are free again, whatever this thread allocates (in other fork handlers) passes
 * through.
 */
void ps_arena_fork_prepare(void)
{
	ps_thread.depth++;
	ps_lock(&jemalloc_start.lock);
	jemalloc_start.forking = true;
	if (jemalloc_start.prepare != NULL)
		jemalloc_start.prepare();
	for (unsigned h = 0; h < PS_HEAPS; h++)
		ps_lock(&heaps[h].carve);
}

void ps_arena_fork_parent(void)
{
	for (unsigned h = PS_HEAPS; h-- > 0;)
		ps_unlock(&heaps[h].carve);
	if (jemalloc_start.parent != NULL)
		jemalloc_start.parent();
	jemalloc_start.forking = false;
	ps_unlock(&jemalloc_start.lock);
	ps_thread.depth--;
}

/* A thread that held the lock of jemalloc's map does not exist in a child: nobody holds it. */
static void free_emap_lock(void)
{
	pthread_mutex_t *lock = &psje_arena_emap_global.lock;
	const int kind = lock->__data.__kind;

	memset(lock, 0, sizeof(*lock));
	lock->__data.__kind = kind;
}

/*
 * Remembers what the parent's arenas were: what is free in them is given back when the child first
 * needs arenas of its own, since most children exec or exit before that.
 */
static void inherit(struct heap_state *heap)
{
	const unsigned arenas = atomic_load(&heap->arenas);

	if (arenas == 0)
		return;
	heap->inherited.arenas = arenas;
	memcpy(heap->inherited.index, heap->index, sizeof(heap->index));
	heap->inherited.next = heap->next;
	heap->inherited.end = heap->end;
}

/* Children of a raw clone() come here too; jemalloc's handler frees its locks in them as well. */
void ps_arena_fork_child(void)
{
	if (jemalloc_start.forking)
		ps_thread.depth--;
	jemalloc_start.forking = false;
	if (jemalloc_start.child != NULL)
		jemalloc_start.child();
	free_emap_lock();
	ps_lock_reset(&jemalloc_start.lock);
	ps_slab_fork_child();
	for (unsigned h = 0; h < PS_HEAPS; h++) {
		ps_lock_reset(&heaps[h].carve);
		inherit(&heaps[h]);
		heaps[h].next = heaps[h].end = NULL;
		heaps[h].slab_granules = 0;
		atomic_store(&heaps[h].refused_until, 0);
		atomic_store(&heaps[h].no_block, SIZE_MAX);
		atomic_store(&heaps[h].arenas, 0);
	}
}
